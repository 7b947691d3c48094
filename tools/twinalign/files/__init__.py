"""Safe readers for arrays in the frameworks' own file formats, and the writer of recordings.

No framework is imported, and pickles go through a restricted reader that runs none of their code (`plain_pickles`).
A recorder in another interpreter has only numpy, so whatever needs more is imported on first use.
"""
