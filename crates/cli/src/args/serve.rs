//! Arguments of the commands that serve a device and talk to servers.

use clap::Args;

use super::volume::VolumeArgs;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// As a loop device, over a file exported through FUSE: on any kernel. Prints /dev/loopN.
    #[arg(long = "loop")]
    pub(crate) as_loop: bool,
    /// As a file exported through FUSE, without a loop device. Prints its path.
    #[arg(long, conflicts_with = "as_loop")]
    pub(crate) file: bool,
    /// The device as it is, without a volume on it: the other side of a comparison.
    #[arg(long, conflicts_with_all = ["table", "give_up_table"])]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The disk, partition or image that is served.
    pub(crate) device: std::path::PathBuf,
    /// Also while it is mounted: its users see I/O errors.
    #[arg(long)]
    pub(crate) force: bool,
}
