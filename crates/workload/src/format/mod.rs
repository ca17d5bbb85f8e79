//! One module for each trace format.

pub(crate) mod alibaba;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod blktrace_set;
pub(crate) mod csv;
pub(crate) mod disksim;
pub(crate) mod etw;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod mobile;
pub(crate) mod msr;
pub(crate) mod own;
pub(crate) mod replay;
pub(crate) mod rwbs;
pub(crate) mod spc;
pub(crate) mod tencent;
pub(crate) mod vscsi;
