//! The key of a run.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Bytes that are hashed at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Hash of everything that a run's result depends on: content of its traces, profile of its drive,
/// policy, parameters, seed, and the program itself.
///
/// It is not cryptographic: it tells runs apart, but proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunKey(u128);

/// Collects the parts of a key. Each part has a name, so that different lists of parts differ.
#[derive(Clone)]
pub struct KeyBuilder(XxHash3_128);

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBuilder")
    }
}

impl KeyBuilder {
    /// Begins the key of a run of this program, of this kind.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self(XxHash3_128::new()).with("program", program()).with("kind", kind)
    }

    /// Adds a part.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        for text in [name, &value] {
            self.0.write(&(text.len() as u64).to_le_bytes());
            self.0.write(text.as_bytes());
        }
        self
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey(self.0.finish_128())
    }
}

impl RunKey {
    /// The first half, which tells the runs of one command apart.
    #[must_use]
    pub fn short(self) -> String {
        format!("{:016x}", self.0 >> 64)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for RunKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a run's key: expected 32 hexadecimal digits");
        if text.len() != 32 {
            return Err(bad());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| bad())
    }
}

impl From<RunKey> for String {
    fn from(key: RunKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for RunKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The program that runs: its version, and the hash of its file. Results of another build are not
/// valid for this one, even if both have the same version.
#[must_use]
pub fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        let hash = std::env::current_exe().and_then(File::open).and_then(hash_of);
        // If the file cannot be read the version must suffice.
        hash.map_or_else(|_| version.to_owned(), |hash| format!("{version}-{hash:032x}"))
    })
}

/// Hash of all bytes of `from`.
pub(super) fn hash_of(mut from: impl Read) -> io::Result<u128> {
    let mut hash = XxHash3_128::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(hash.finish_128()),
            Ok(read) => hash.write(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let key = |parts: &[(&str, &str)]| {
            let build = KeyBuilder::new("test");
            parts.iter().fold(build, |build, (name, value)| build.with(name, value)).key()
        };
        let all = [
            key(&[("trace", "ab"), ("drive", "c")]),
            key(&[("trace", "a"), ("drive", "bc")]),
            key(&[("trace", "abdrive"), ("", "c")]),
            key(&[("trace", "ab")]),
            KeyBuilder::new("other").with("trace", "ab").key(),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other));
        }
        assert_eq!(all[3], key(&[("trace", "ab")]));
    }

    #[test]
    fn a_key_survives_its_text() {
        let key = KeyBuilder::new("test").with("seed", 7).key();
        assert_eq!(key.to_string().parse::<RunKey>().unwrap(), key);
        assert!("12".parse::<RunKey>().is_err() && "x".repeat(32).parse::<RunKey>().is_err());
    }
}
