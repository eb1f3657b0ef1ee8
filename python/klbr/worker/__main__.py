from klbr.worker.start import main

# Does not return, and takes every name of this module away: the namespace becomes that of the cells.
main()
