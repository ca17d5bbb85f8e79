//! `manylogs probe`: prints facts about a disk for udev, as blkid does for other contents.

use std::fs::File;
use std::io::{self, Read};

use manylogs::{HEAD_BYTES, VolumeError, probe};
use manylogs_ext4::Summary;
use manylogs_gecko::ChainMember;
use manylogs_serve::Occupant;

use super::{id_text, volume_failure};
use crate::args::volume::ProbeArgs;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let path = args.device.display();
    let mut head = [0; HEAD_BYTES];
    // Without a lock, because a served disk is probed too.
    let read = File::open(&args.device).and_then(|mut device| device.read_exact(&mut head));
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(Failure::at(&args.device, &error)),
        Ok(()) => {}
    }
    let found = match probe(&head) {
        Err(VolumeError::NotAVolume) if label(&head).is_some() => return member(&head),
        // udev has the other facts from blkid.
        Err(VolumeError::NotAVolume) if is_adopted(&head) => {
            return print("ID_FS_TYPE=mlfs\nID_FS_USAGE=filesystem\n");
        }
        Err(VolumeError::NotAVolume) => {
            return match Occupant::at(&args.device) {
                Ok(Some(found)) => occupant(&found),
                _ => Err(Failure::input(format!("{path}: no Manylogs volume"))),
            };
        }
        found => found.map_err(|error| volume_failure(&args.device, &error))?,
    };
    let id = id_text(&found.id);
    let mut out = format!(
        "ID_FS_TYPE=manylogs\nID_FS_USAGE=other\nID_FS_VERSION={}\nID_FS_UUID={id}\n\
         ID_FS_UUID_ENC={id}\nMANYLOGS_ID={}\n",
        found.version,
        id.replace('-', "")
    );
    if !found.label.is_empty() {
        out += &format!(
            "ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n",
            escaped(&found.label, |_| "_".to_owned()),
            escaped(&found.label, |byte| format!("\\x{byte:02x}"))
        );
    }
    print(&out)
}

/// The label of a drive of a chain, if `head` is the beginning of one.
fn label(head: &[u8]) -> Option<ChainMember> {
    ChainMember::decode(head).ok().flatten()
}

fn member(head: &[u8]) -> Result<(), Failure> {
    let Some(label) = label(head) else { return Ok(()) };
    let chain = id_text(&label.chain);
    print(&format!(
        "ID_FS_TYPE=manylogs_chain\nID_FS_USAGE=raid\nID_FS_UUID={chain}\nID_FS_UUID_ENC={chain}\n\
         MANYLOGS_CHAIN={}\nMANYLOGS_MEMBER={}\nMANYLOGS_MEMBERS={}\n",
        chain.replace('-', ""),
        label.drive,
        label.drives
    ))
}

/// The facts of what Everest and Gecko keep besides.
fn occupant(found: &Occupant) -> Result<(), Failure> {
    let (kind, key, id) = match found {
        Occupant::Base(label) => ("base", "BASE", label.id),
        Occupant::Store(label) => ("store", "STORE", label.store),
        Occupant::Cache(label) => ("cache", "CACHE_OF", label.chain),
    };
    let id = id_text(&id);
    print(&format!(
        "ID_FS_TYPE=manylogs_{kind}\nID_FS_USAGE=other\nID_FS_UUID={id}\nID_FS_UUID_ENC={id}\n\
         MANYLOGS_{key}={}\n",
        id.replace('-', "")
    ))
}

/// Whether `head` is the beginning of an ext4 file system that MLFS adopted.
fn is_adopted(head: &[u8]) -> bool {
    Summary::of(head).is_ok_and(|summary| summary.features.contains(&"mlfs"))
}

/// Escapes a label for udev's rules and names of files, as libblkid does.
fn escaped(label: &str, other: impl Fn(u8) -> String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "#+-.:=@_".contains(c);
    let part = |c: char| match c {
        c if plain(c) => c.to_string(),
        c => c.to_string().bytes().map(&other).collect(),
    };
    label.chars().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_harmless() {
        assert_eq!(escaped("a b/c-1", |byte| format!("\\x{byte:02x}")), r"a\x20b\x2fc-1");
        assert_eq!(escaped("a\nID=$(b)", |_| "_".to_owned()), "a_ID=__b_");
    }
}
