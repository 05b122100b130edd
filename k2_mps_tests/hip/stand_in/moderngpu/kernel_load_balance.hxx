// See context.hxx.
