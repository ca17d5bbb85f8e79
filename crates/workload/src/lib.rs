//! Block traces: readers, recorder, windows, mixes and statistics
