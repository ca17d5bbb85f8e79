//! The trace formats; one module for each.

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

use std::fmt;
use std::str::FromStr;

use crate::error::TraceError;

/// The trace formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Our own recording.
    Manylogs,
    /// blktrace, binary: per-CPU files, a directory or a tar archive of them.
    Blktrace,
    /// The text that blkparse prints.
    Blkparse,
    /// MSR Cambridge CSV.
    Msr,
    /// SNIA's text of Windows event traces (MS production servers).
    Etw,
    /// SPC (UMass Financial, WebSearch).
    Spc,
    /// DiskSim, SSDsim and MQSim ascii, in sectors.
    DiskSim,
    /// Replay text: five columns as DiskSim, but in milliseconds and bytes.
    Replay,
    /// CloudPhysics vSCSI, version 1.
    Vscsi1,
    /// CloudPhysics vSCSI, version 2.
    Vscsi2,
    /// Alibaba cloud block storage CSV (2020).
    Alibaba,
    /// Tencent cloud block storage CSV.
    Tencent,
    /// CSV of the Technion mobile traces.
    Mobile,
    /// fio iolog, version 2.
    FioIolog2,
    /// fio iolog, version 3.
    FioIolog3,
    /// FIU's blank-separated text with a digest per request.
    Fiu,
    /// CSV whose first line names the columns.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 17] = [
        Self::Manylogs,
        Self::Blktrace,
        Self::Blkparse,
        Self::Msr,
        Self::Etw,
        Self::Spc,
        Self::DiskSim,
        Self::Replay,
        Self::Vscsi1,
        Self::Vscsi2,
        Self::Alibaba,
        Self::Tencent,
        Self::Mobile,
        Self::FioIolog2,
        Self::FioIolog3,
        Self::Fiu,
        Self::Csv,
    ];

    /// The word that names the format on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manylogs => "manylogs",
            Self::Blktrace => "blktrace",
            Self::Blkparse => "blkparse",
            Self::Msr => "msr",
            Self::Etw => "etw",
            Self::Spc => "spc",
            Self::DiskSim => "disksim",
            Self::Replay => "replay",
            Self::Vscsi1 => "vscsi1",
            Self::Vscsi2 => "vscsi2",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::Mobile => "mobile",
            Self::FioIolog2 => "fio2",
            Self::FioIolog3 => "fio3",
            Self::Fiu => "fiu",
            Self::Csv => "csv",
        }
    }

    /// The names of all formats, for messages.
    #[must_use]
    pub fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| {
            let known = Self::list();
            TraceError::Options(
                format!("unknown trace format {name:?}; known formats: {known}").into(),
            )
        })
    }
}
