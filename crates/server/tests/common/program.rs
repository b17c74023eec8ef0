//! The real program, started and ended by process id.
