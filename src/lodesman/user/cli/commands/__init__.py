"""The commands of `lode`, each loaded when it is called. None imports another: what they share stands beside this folder."""
