//! Virtual time: executor, nodes, and a disk that crashes
