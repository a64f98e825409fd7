//! The simulated system.
