//! Keys by which stores and their clients know each other on other machines.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, remove_file};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use manylogs_storage::sync_parent;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use super::tls::{ClientSeal, IS_THERE, Pair, StoreSeal};

/// Where a machine's key is if no other file is named.
pub const KEY_FILE: &str = "/etc/manylogs/key";

pub(super) const KEY_BYTES: usize = 32;
/// The public key (Ed25519) of a machine that lends, or that borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub(super) [u8; KEY_BYTES]);

/// The text is no public key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{given}: a public key has 64 digits from 0 to f, as `manylogs stores BASE key` prints it")]
pub struct PublicKeyError {
    given: String,
}

/// Why a machine has no key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing can be encrypted.
    #[error(
        "this program was built without TLS, which keys need: build it with make build, or with \
         --features tls of manylogs-cli"
    )]
    NoTls,
    /// The file cannot be read or made.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others could take the key.
    #[error(
        "{}: other users may read this key: make another one, or set its mode to 600",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file holds something else.
    #[error("{}: no key of manylogs: name another file, or remove this one", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

/// A machine's key pair.
#[derive(Clone, Debug)]
pub struct Identity {
    pair: Pair,
    public: PublicKey,
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        parse_digits(text).map(Self).ok_or_else(|| PublicKeyError { given: text.to_owned() })
    }
}

fn parse_digits(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (byte, two) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(two[0])? << 4 | digit(two[1])?).ok()?;
    }
    Some(bytes)
}

impl Identity {
    /// The key pair in the file at `path`; a file that is not there is made, durably, for its owner
    /// alone to read. It holds the 64 digits of the private key.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn of_file(path: &Path) -> Result<Self, KeyError> {
        if !IS_THERE {
            return Err(KeyError::NoTls);
        }
        let failed = |error| KeyError::Io { path: path.to_owned(), error };
        let text = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match make(path) {
                // Somebody else made it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
                Ok(()) => read(path),
                Err(error) => Err(error),
            },
            read => read,
        };
        let (text, permissions) = text.map_err(failed)?;
        if permissions.mode() & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned() });
        }
        let unknown = || KeyError::Unknown { path: path.to_owned() };
        let private = parse_digits(text.trim_end()).ok_or_else(unknown)?;
        let (pair, public) = Pair::of_private(&private).ok_or_else(unknown)?;
        Ok(Self { pair, public })
    }

    /// The public key, by which others let this machine in, or recognise it.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// An identity that shows the public key of `other` without its private key.
    #[cfg(all(test, feature = "tls"))]
    pub(crate) fn showing(&self, other: &Self) -> Self {
        Self { pair: self.pair.showing(&other.pair), public: other.public }
    }

    /// The settings of a client that talks to the store with this key alone.
    pub(crate) fn of_client(&self, store: PublicKey) -> Result<ClientSeal, String> {
        self.pair.of_client(store)
    }

    /// The settings of a store that serves clients with these keys alone.
    pub(crate) fn of_store(&self, allowed: Vec<PublicKey>) -> Result<StoreSeal, String> {
        self.pair.of_store(allowed)
    }
}

fn read(path: &Path) -> io::Result<(String, Permissions)> {
    let (mut file, mut text) = (File::open(path)?, String::new());
    (&mut file).take(1024).read_to_string(&mut text)?;
    Ok((text, file.metadata()?.permissions()))
}

fn make(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    let mut private = [0; KEY_BYTES];
    // So few bytes come as a whole.
    getrandom(&mut private, GetRandomFlags::empty())?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = writeln!(file, "{}", PublicKey(private)).and_then(|()| file.sync_all());
    written.and_then(|()| sync_parent(path)).inspect_err(|_| {
        // A part of a key would be refused from then on.
        let _ = remove_file(path);
    })
}
