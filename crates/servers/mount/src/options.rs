//! How a file system is mounted.

mod bounds;
mod foreign;

use std::num::NonZeroU32;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Nanos, bytes_text};
use manylogs_ext4::{AccessTimes, Durability, DurableNames, Memory, PatternError, ReplayProgress};
use manylogs_fuse::MountFlags;
use manylogs_mlfs::JournalMode;
use manylogs_operate::Emulated;
use manylogs_storage::Reactor;
use thiserror::Error;

use crate::caches::Caches;
use crate::memory::usual_memory;

/// Puts an emulated drive between the device and the file system.
pub type Between =
    Box<dyn FnOnce(&Reactor, Rc<dyn BlockDevice>) -> Result<Emulated, String> + Send>;

/// How a file system is mounted. See [`MountOptions::add`].
#[derive(Default)]
pub struct MountOptions {
    /// Nothing is written, not even a replay of the journal.
    pub read_only: bool,
    /// When reading changes times.
    pub access_times: AccessTimes,
    /// Reading directories does not change times.
    pub no_directory_times: bool,
    /// What happens after damage is found.
    pub on_error: OnError,
    /// Where the journal is, and what it holds. When not given, [`JournalMode::Manylogs`] for an
    /// adopted file system, and [`JournalMode::Ordered`] for plain ext4.
    pub mode: Option<JournalMode>,
    /// What the kernel caches.
    caches: Caches,
    /// What the mount forbids, and how it works.
    flags: MountFlags,
    /// Flags that options have lifted: devices or set-id programs that are forbidden to users by
    /// default.
    allowed: MountFlags,
    /// Seconds after which a change is durable without a sync; ext4's five when not given.
    pub commit: Option<NonZeroU32>,
    /// How old metadata may become in a journal that keeps it; a day when not given, and no bound
    /// if that is what was given.
    pub max_age: Option<Option<Nanos>>,
    /// The map of a journal that keeps metadata is saved, so that the next mount is short.
    pub saves_map: bool,
    /// A file that replaces another may be found empty after a crash.
    no_auto_alloc: bool,
    /// Names of files that need durability but no home (durable-only files).
    pub(crate) durable: DurableNames,
    /// Writes with `O_DSYNC` or `O_SYNC` need durability but no home either.
    pub durable_dsync: bool,
    /// Processors may sleep while programs send one request after another.
    no_awake: bool,
    /// Requests come through an io_uring, where the kernel offers it.
    by_ring: bool,
    /// Most bytes of memory; a sixteenth of the machine's when not given, see [`usual_memory`].
    memory: Option<u64>,
    /// Where a replay of the journal notes how far it is.
    pub replay: ReplayProgress,
    /// What is put over the device.
    pub between: Option<Between>,
    /// Options that change nothing here, each with the reason.
    ignored: Vec<Ignored>,
}

/// An option of ext4 that is accepted and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// As it was given.
    pub option: String,
    /// What holds without the option.
    pub why: &'static str,
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mount option {} changes nothing: {}", self.option, self.why)
    }
}

/// What happens when an operation finds damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The operation fails; others go on.
    #[default]
    Continue,
    /// Nothing is changed any more until the next mount.
    ReadOnly,
}

/// Why an option is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The option is unknown.
    #[error("unknown mount option {0}: see manylogs fs mount --help")]
    Unknown(String),
    /// The option is one of the kernel's ext4, and not offered here.
    #[error("mount option {option}: {why}")]
    NotOffered {
        /// As it was given.
        option: String,
        /// Why it is not offered.
        why: &'static str,
    },
    /// A pattern for durable-only files is invalid.
    #[error("durable: {0}")]
    Durable(#[from] PatternError),
    /// The memory is too little for the largest requests and transactions.
    #[error(
        "memory={0}: a size of at least {least} is needed, such as 256M",
        least = bytes_text(Memory::LEAST)
    )]
    Memory(String),
    /// A bound on the age of metadata that is none.
    #[error("max-age={0}: give a span of at least a minute, as 24h or 30m, or off")]
    Age(String),
}

impl MountOptions {
    /// Adds options in the syntax of `mount -o`, separated by commas: `ro`, `rw`, `noatime`,
    /// `relatime`, `strictatime`, `nodiratime`, `errors=continue`, `errors=remount-ro`,
    /// `data=ordered`, `data=journal`, `memory=SIZE`, `max-age=SPAN`, `savemap`, `nosavemap`,
    /// `durable=PATTERN:PATTERN`, `durable_dsync`,
    /// `sync`, `dirsync`, `auto_da_alloc`, `noauto_da_alloc`, `dev`, `suid`, `exec` and their
    /// opposites, `noattrcache`, `lookupcache=all|positive|none`, `nodircache`, `nolinkcache`,
    /// `noreaddirplus`, `nodatacache`, `awake`, `noawake`, `uring`, `nouring`, and further options
    /// of ext4: `commit=SECONDS` has effect; others are accepted and change nothing if no program
    /// can rely on them ([`MountOptions::ignored`]). Options for programs that read fstab
    /// (`defaults`, `nofail`, `x-systemd.automount` ...) change nothing.
    ///
    /// # Errors
    /// If an option is not among these; the options before it may have taken effect.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',')
            .filter(|option| !option.is_empty())
            .try_for_each(|option| self.add_one(option))
    }

    /// Marks files with such names as durable-only, which has effect if the journal is in logs near
    /// the head; see [`DurableNames`]. `between` separates the patterns.
    ///
    /// # Errors
    /// [`OptionError::Durable`].
    pub fn keep_named(&mut self, list: &str, between: char) -> Result<(), OptionError> {
        self.durable.add(DurableNames::of_list(list, between)?);
        Ok(())
    }

    /// What the kernel caches of the file system.
    pub(crate) fn caches(&self) -> Caches {
        let directories =
            if self.no_directory_times { AccessTimes::Off } else { self.access_times };
        self.caches.noticing(self.access_times, directories).read_only(self.read_only)
    }

    /// Whether idle processors may be kept awake while one request follows another, where that
    /// makes the requests faster.
    pub(crate) const fn keeps_awake(&self) -> bool {
        !self.no_awake
    }

    /// Whether requests may come through an io_uring, where the kernel offers it.
    pub(crate) const fn by_ring(&self) -> bool {
        self.by_ring
    }

    /// A new account of the server's memory.
    pub(crate) fn account(&self) -> Memory {
        Memory::new(self.memory.unwrap_or_else(usual_memory))
    }

    fn add_one(&mut self, option: &str) -> Result<(), OptionError> {
        if let Some(size) = option.strip_prefix("memory=") {
            return self.bound_memory(size);
        }
        if let Some(span) = option.strip_prefix("max-age=") {
            return self.bound_age(span);
        }
        if let Some(list) = option.strip_prefix("durable=") {
            return self.keep_named(list, ':');
        }
        let not_offered = |why| OptionError::NotOffered { option: option.to_owned(), why };
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "savemap" => self.saves_map = true,
            "nosavemap" => self.saves_map = false,
            "noatime" => self.access_times = AccessTimes::Off,
            "relatime" | "atime" => self.access_times = AccessTimes::Relative,
            "strictatime" => self.access_times = AccessTimes::Strict,
            "nodiratime" => self.no_directory_times = true,
            "diratime" => self.no_directory_times = false,
            "errors=continue" => self.on_error = OnError::Continue,
            "errors=remount-ro" => self.on_error = OnError::ReadOnly,
            "errors=panic" => return Err(not_offered("a program cannot stop the kernel")),
            "data=ordered" | "mode=ordered" => self.mode = Some(JournalMode::Ordered),
            "data=journal" | "data=data" | "mode=data" => self.mode = Some(JournalMode::Data),
            "mode=lazy" => self.mode = Some(JournalMode::Lazy),
            "mode=manylogs" => self.mode = Some(JournalMode::Manylogs),
            "mode=manylogs+lazy" => self.mode = Some(JournalMode::ManylogsLazy),
            "mode=adaptive" => self.mode = Some(JournalMode::Adaptive),
            "data=writeback" => {
                return Err(not_offered("content could be older than its size: use data=ordered"));
            }
            "durable_dsync" => self.durable_dsync = true,
            "awake" => self.no_awake = false,
            "noawake" => self.no_awake = true,
            "uring" => self.by_ring = true,
            "nouring" => self.by_ring = false,
            "nodev" => self.set(MountFlags::NO_DEV),
            "dev" => self.clear(MountFlags::NO_DEV),
            "nosuid" => self.set(MountFlags::NO_SUID),
            "suid" => self.clear(MountFlags::NO_SUID),
            "noexec" => self.set(MountFlags::NO_EXEC),
            "exec" => self.clear(MountFlags::NO_EXEC),
            "sync" => self.set(MountFlags::SYNC),
            "async" => self.clear(MountFlags::SYNC),
            "dirsync" => self.set(MountFlags::DIR_SYNC),
            "auto_da_alloc" | "auto_da_alloc=1" => self.no_auto_alloc = false,
            "noauto_da_alloc" | "auto_da_alloc=0" => self.no_auto_alloc = true,
            "remount" => {
                return Err(not_offered("unmount the file system and mount it again"));
            }
            _ if is_for_others(option) || self.caches.add(option) => {}
            _ => return self.add_foreign(option),
        }
        Ok(())
    }

    /// Adds an option of ext4 that this file system lacks, or treats in its own way.
    fn add_foreign(&mut self, option: &str) -> Result<(), OptionError> {
        use foreign::Meaning::{Commit, Differs, Fits, Refused};
        let not_offered = |why| OptionError::NotOffered { option: option.to_owned(), why };
        match foreign::meaning(option) {
            Some(Fits) => Ok(()),
            Some(Differs(why)) => {
                self.ignored.push(Ignored { option: option.to_owned(), why });
                Ok(())
            }
            Some(Refused(why)) => Err(not_offered(why)),
            Some(Commit(seconds)) => {
                self.commit = NonZeroU32::new(seconds);
                Ok(())
            }
            None => Err(match Caches::advice(option) {
                Some(why) => not_offered(why),
                None => OptionError::Unknown(option.to_owned()),
            }),
        }
    }

    /// Options that were taken and change nothing.
    #[must_use]
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    fn set(&mut self, flag: MountFlags) {
        self.flags.insert(flag);
        self.allowed.remove(flag);
    }

    fn clear(&mut self, flag: MountFlags) {
        self.flags.remove(flag);
        self.allowed.insert(flag);
    }

    /// Which changes are durable without a sync.
    pub(crate) fn durability(&self) -> Durability {
        Durability {
            sync: self.flags.contains(MountFlags::SYNC),
            dir_sync: self.flags.contains(MountFlags::DIR_SYNC),
            no_auto_alloc: self.no_auto_alloc,
        }
    }

    /// The flags for the kernel. A caller that may mount anything may have devices and set-user-id
    /// programs.
    pub(crate) fn for_kernel(&self, may_all: bool) -> MountFlags {
        let by_default = MountFlags::NO_DEV | MountFlags::NO_SUID;
        let mut flags = self.flags;
        if !may_all {
            flags.insert(by_default.difference(self.allowed));
        }
        flags.set(MountFlags::READ_ONLY, self.read_only);
        flags
    }
}

/// Options for programs that read fstab, and those that a mount has anyway.
fn is_for_others(option: &str) -> bool {
    let words = [
        "defaults",
        "auto",
        "noauto",
        "nofail",
        "_netdev",
        "_rnetdev",
        "silent",
        "loud",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "allow_other",
        "default_permissions",
        "loop",
        "acl",
        "user_xattr",
        "lazytime",
        "nolazytime",
    ];
    words.contains(&option)
        || ["x-", "X-", "comment="].iter().any(|begin| option.starts_with(begin))
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("read_only", &self.read_only)
            .field("access_times", &self.access_times)
            .field("on_error", &self.on_error)
            .field("mode", &self.mode)
            .field("flags", &self.flags)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_opposites_counts_and_fstab_words_pass() {
        let mut options = MountOptions::default();
        options.add("defaults,noatime,nodev,dev,nosuid,x-systemd.automount,ro,rw").unwrap();
        assert!(!options.read_only && options.access_times == AccessTimes::Off);
        let told = options.for_kernel(true);
        assert_eq!(told, MountFlags::NO_SUID);
        assert_eq!(options.for_kernel(false), told);
        options.add("data=journal,mode=adaptive").unwrap();
        assert_eq!(options.mode, Some(JournalMode::Adaptive));
        assert!(options.keeps_awake());
        options.add("noawake").unwrap();
        assert!(!options.keeps_awake());
        options.add("awake").unwrap();
        assert!(options.keeps_awake());
        assert!(!options.by_ring());
        options.add("uring").unwrap();
        assert!(options.by_ring());
        options.add("nouring").unwrap();
        assert!(!options.by_ring());
        let default = MountOptions::default();
        assert_eq!(default.for_kernel(true), MountFlags::empty());
        assert_eq!(default.for_kernel(false), MountFlags::NO_DEV | MountFlags::NO_SUID);
    }

    #[test]
    fn memory_has_a_least_bound_that_a_refusal_names() {
        let mut options = MountOptions::default();
        options.add("memory=64M,memory=1.5G").unwrap();
        assert_eq!(options.account().bound(), 3 << 29);
        for size in ["63M", "", "-1", "much"] {
            let refused = options.add(&format!("memory={size}")).unwrap_err();
            assert_eq!(refused, OptionError::Memory(size.to_owned()));
            assert!(refused.to_string().contains("at least 64"), "{refused}");
        }
        let usual = MountOptions::default().account().bound();
        assert!((Memory::LEAST..=Memory::USUAL).contains(&usual), "{usual}");
    }

    #[test]
    fn names_of_durable_files_are_patterns() {
        let mut options = MountOptions::default();
        options.add("ro,durable=pg_wal/*:WiredTigerLog.*,noatime").unwrap();
        options.keep_named("*.db-wal", ',').unwrap();
        let all = DurableNames::of_list("pg_wal/*,WiredTigerLog.*,*.db-wal", ',').unwrap();
        assert_eq!(options.durable, all);
        let refused = options.add("durable=wal/*:*").unwrap_err();
        assert!(refused.to_string().starts_with("durable: pattern \"*\": it fits every"));
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        let mut options = MountOptions::default();
        let unknown = options.add("ro,barriers=0").unwrap_err();
        assert_eq!(unknown, OptionError::Unknown("barriers=0".to_owned()));
        for option in ["errors=panic", "data=writeback", "remount"] {
            let refused = options.add(option).unwrap_err();
            assert!(matches!(&refused, OptionError::NotOffered { option: o, .. } if o == option));
        }
    }
}
