"""`python -m joulecast.metering` is the sampler process; it is started by `sampler.Sampler`, not by hand."""

from .polling import main

if __name__ == "__main__":
    main()
