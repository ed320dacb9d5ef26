"""The engine: experiments cut into chunks, which run anywhere and are kept.

* `experiment`: what an experiment is: cells, chunks, and their random streams;
* `compute`: run what is missing and put a result together;
* `workers`: this process, processes of this machine, or a Dask cluster;
* `store`: finished chunks on disk;
* `versions`: what decides whether two processes compute the same.
"""
