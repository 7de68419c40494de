"""What lines of batch systems in a script (#SBATCH, #$, #PBS, #BSUB) ask for, as attributes."""
