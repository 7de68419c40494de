"""What the lines of batch systems in a script (#SBATCH, #$, #PBS, #BSUB) ask for, as attributes of a description."""
