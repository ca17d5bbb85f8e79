//! Mount options of the kernel's ext4, and what becomes of each.

/// What an option of ext4 means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It asks for what holds anyway, or for a difference that no program could notice.
    Fits,
    /// It asks for different behaviour, but no data is lost without that.
    Differs(&'static str),
    /// It is refused, because somebody could rely on it.
    Refused(&'static str),
    /// Seconds after which changes are durable without a sync; zero for the default.
    Commit(u32),
}

use Meaning::{Commit, Differs, Fits, Refused};

const FLUSHED: &str = "flushes are always sent, or what was synced would not be durable";
const NOT_DISCARDED: &str = "freed blocks are not discarded";
const ATTRIBUTES: &str = "extended attributes and lists of access are always there";
const ALLOCATED_LATE: &str = "blocks are always allocated when content is written home";
const PAGES: &str = "content always passes the page cache";
const CHECKSUMS: &str = "the journal has the checksums that its superblock asks for";
const ORDER: &str = "a commit is always written behind what it commits";
const ROOM: &str = "statfs always counts without what the file system takes itself";
const DEBUG: &str = "nothing is printed for it";
const DIRECTORY_SIZE: &str = "directories grow as they must";
const REPLAYED: &str = "with ro the journal is replayed in memory and nothing is written, and \
                        without it must be replayed";
const NO_QUOTAS: &str = "no quotas are counted or enforced: leave it out if nobody relies on them";
const GROUPS: &str = "new files have the group of whoever makes them: leave it out, and set the \
                      set-group-id bit of directories instead (chmod g+s)";
const RESERVED: &str = "whose the reserved blocks are is said on the disk: leave it out, and run \
                        tune2fs -u USER -g GROUP while the disk is plain ext4";
const OTHER_SUPERBLOCK: &str = "the first superblock is used: leave it out, and repair it with \
                                e2fsck -b";
const OTHER_JOURNAL: &str = "the journal must be in the file system: leave it out";
const SECONDS: &str = "give whole seconds";

/// What `option` means; `None` if ext4 has none of that name.
pub(super) fn meaning(option: &str) -> Option<Meaning> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    Some(match (name, value) {
        ("commit", Some(seconds)) => match seconds.parse() {
            Ok(seconds) => Commit(seconds),
            Err(_) => Refused(SECONDS),
        },
        ("barrier", None | Some("1")) => Fits,
        ("barrier", Some("0")) | ("nobarrier", None) => Differs(FLUSHED),
        ("nodiscard", None) => Fits,
        ("discard", None) => Differs(NOT_DISCARDED),
        ("noacl" | "nouser_xattr", None) => Differs(ATTRIBUTES),
        ("delalloc", None) => Fits,
        ("nodelalloc", None) => Differs(ALLOCATED_LATE),
        ("dax", Some("inode" | "never")) => Fits,
        ("dax", None | Some("always")) => Differs(PAGES),
        ("journal_checksum" | "nojournal_checksum", None) => Differs(CHECKSUMS),
        ("journal_async_commit", None) => Differs(ORDER),
        ("bsddf", None) => Fits,
        ("minixdf", None) => Differs(ROOM),
        ("debug", None) => Differs(DEBUG),
        ("max_dir_size_kb", Some("0")) => Fits,
        ("max_dir_size_kb", Some(_)) => Differs(DIRECTORY_SIZE),
        ("noload" | "norecovery", None) => Differs(REPLAYED),
        ("noquota", None) => Fits,
        ("quota" | "usrquota" | "grpquota" | "prjquota", None)
        | ("usrjquota" | "grpjquota" | "jqfmt", Some(_)) => Refused(NO_QUOTAS),
        ("nogrpid" | "sysvgroups", None) => Fits,
        ("grpid" | "bsdgroups", None) => Refused(GROUPS),
        ("resuid" | "resgid", Some("0")) => Fits,
        ("resuid" | "resgid", Some(_)) => Refused(RESERVED),
        ("sb", Some("1")) => Fits,
        ("sb", Some(_)) => Refused(OTHER_SUPERBLOCK),
        ("journal_dev" | "journal_path", Some(_)) => Refused(OTHER_JOURNAL),
        _ if is_tuning(name, value) => Fits,
        _ => return None,
    })
}

/// Whether the option makes ext4 only faster or slower, or has no effect in the kernel either.
fn is_tuning(name: &str, value: Option<&str>) -> bool {
    let words = [
        "block_validity",
        "noblock_validity",
        "dioread_lock",
        "dioread_nolock",
        "i_version",
        "iversion",
        "noiversion",
        "init_itable",
        "noinit_itable",
        "mblk_io_submit",
        "nomblk_io_submit",
        "no_mbcache",
        "nombcache",
        "no_prefetch_block_bitmaps",
        "prefetch_block_bitmaps",
        "nouid32",
        "oldalloc",
        "orlov",
        "nostrictatime",
        "warn_on_error",
        "nowarn_on_error",
    ];
    let numbers = [
        "fast_commit_buffer",
        "init_itable",
        "inode_readahead_blks",
        "journal_ioprio",
        "max_batch_time",
        "mb_optimize_scan",
        "min_batch_time",
        "stripe",
    ];
    match value {
        None => words.contains(&name),
        Some("abort" | "ignore") if name == "data_err" => true,
        Some(value) => numbers.contains(&name) && value.parse::<u32>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{MountOptions, OptionError};

    /// Options that people have in fstab for ext4.
    #[test]
    fn options_of_ext4_are_taken_ignored_with_a_word_or_refused_with_what_to_do() {
        let taken = "defaults,errors=remount-ro,noatime,barrier,barrier=1,nodiscard,delalloc,acl,\
            user_xattr,data_err=abort,inode_readahead_blks=64,init_itable=10,noinit_itable,\
            max_batch_time=15000,min_batch_time=0,stripe=32,journal_ioprio=3,i_version,\
            block_validity,resuid=0,resgid=0,sysvgroups,noquota,lazytime,dax=never,\
            auto_da_alloc,x-systemd.device-timeout=9,X-mount.mkdir,nofail,_netdev,commit=30";
        let mut options = MountOptions::default();
        options.add(taken).unwrap();
        assert_eq!(options.ignored(), []);
        assert_eq!(options.commit.map(u32::from), Some(30));
        options.add("commit=0").unwrap();
        assert_eq!(options.commit, None, "the usual");
        let ignored = [
            "discard",
            "nobarrier",
            "barrier=0",
            "nodelalloc",
            "noacl",
            "nouser_xattr",
            "dax",
            "journal_checksum",
            "journal_async_commit",
            "noload",
            "norecovery",
            "minixdf",
            "debug",
        ];
        options.add(&ignored.join(",")).unwrap();
        let told: Vec<&str> = options.ignored().iter().map(|told| told.option.as_str()).collect();
        assert_eq!(told, ignored);
        for option in [
            "usrquota",
            "grpquota",
            "prjquota",
            "quota",
            "usrjquota=aquota.user",
            "grpid",
            "bsdgroups",
            "resuid=7",
            "resgid=7",
            "sb=8193",
            "journal_dev=0x801",
            "commit=soon",
        ] {
            let refused = MountOptions::default().add(option).unwrap_err();
            let OptionError::NotOffered { option: named, .. } = &refused else {
                panic!("{option}: {refused}");
            };
            assert_eq!(named, option);
        }
        for option in ["stripes=1", "stripe=x", "barrier=2", "barrier=", "quotas"] {
            let refused = MountOptions::default().add(option).unwrap_err();
            assert_eq!(refused, OptionError::Unknown(option.to_owned()));
        }
    }
}
