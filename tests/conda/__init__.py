"""Conda environments without conda: a channel made of what this machine has, and a stand-in for the `conda` command.

package.py      the format of packages
channel.py      a real channel in a folder: `python`, a few pure Python packages, shell tools
standin.py      the command: solves and installs from that channel with py-rattler
fixtures.py     the fixture `conda`, which puts the command on PATH
installed.py    marin_rules installed from its wheel, for a driver's environment as users have it

They prove that steps and rules run in the environment that they name. They prove nothing about conda itself, or about
the packages of conda-forge.
"""
