"""`python -m avem` is the command `avem`."""

from avem.cli import app

if __name__ == "__main__":
    app(prog_name="python -m avem")
