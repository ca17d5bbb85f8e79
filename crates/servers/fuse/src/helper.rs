//! Mounting for users without the privilege: through `fusermount3`, a program of the system that
//! has it.
//!
//! `fusermount3` mounts, and passes the connection back over a socket. A variable of its
//! environment has the socket's number. We pass the socket as its standard input, so that no other
//! program inherits it.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::mount::{MountFlags, MountOptions, Source};

const PROGRAM: &str = "fusermount3";
/// The variable with the socket's number.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts on `target`; returns the connection to the kernel.
pub(crate) fn mount(target: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = Command::new(PROGRAM)
        .arg("-o")
        .arg(list(options))
        .arg("--")
        .arg(target)
        .env(SOCKET_VARIABLE, "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let helper = helper.map_err(|error| {
        let message = format!("only root may mount without {PROGRAM} (package fuse3): {error}");
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    })?;
    let received = receive(&ours);
    drop(ours);
    let ended = helper.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    received?.ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, said))
}

/// Unmounts `target` lazily: a file system in use ends with its last user.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    let ended = Command::new(PROGRAM).args(["-u", "-q", "-z", "--"]).arg(target).output()?;
    if ended.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&ended.stderr).trim().to_owned()))
}

/// Mount options in the syntax of `fusermount3`, separated by commas.
fn list(options: &MountOptions) -> String {
    let name = match &options.source {
        Source::Named(name) => name.clone(),
        Source::Disk(path) => path.display().to_string(),
    };
    let escaped = name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![format!("fsname={escaped}")];
    list.extend(options.subtype.map(|subtype| format!("subtype={subtype}")));
    let flags = [
        ("allow_other", options.allow_other),
        ("default_permissions", options.default_permissions),
        ("ro", options.flags.contains(MountFlags::READ_ONLY)),
        ("nodev", options.flags.contains(MountFlags::NO_DEV)),
        ("nosuid", options.flags.contains(MountFlags::NO_SUID)),
        ("noexec", options.flags.contains(MountFlags::NO_EXEC)),
        ("noatime", options.flags.contains(MountFlags::NO_ATIME)),
        ("sync", options.flags.contains(MountFlags::SYNC)),
        ("dirsync", options.flags.contains(MountFlags::DIR_SYNC)),
    ];
    list.extend(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
    list.join(",")
}

/// Receives the descriptor over the socket; `None` if the socket is closed instead.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_the_program_reads_them() {
        let options = MountOptions {
            source: Source::Named("a,b\\c".to_owned()),
            subtype: Some("manylogs"),
            allow_other: false,
            default_permissions: true,
            flags: MountFlags::NO_DEV | MountFlags::READ_ONLY,
        };
        let expected = "fsname=a\\,b\\\\c,subtype=manylogs,default_permissions,ro,nodev";
        assert_eq!(list(&options), expected);
    }
}
