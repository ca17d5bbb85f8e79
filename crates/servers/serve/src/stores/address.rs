//! Addresses of stores, as users write them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use manylogs_block::Nanos;
use manylogs_everest::{StoreId, store_name};
use manylogs_storage::Peer;
use thiserror::Error;

use super::keys::PublicKey;
use crate::address::{AddressError, NbdAddress};

const EXPECTED: &str = "unix:PATH or tcp:HOST:PORT, and perhaps #STORE, #KEY or #STORE+KEY: \
     the 32 digits of the store's name, the 64 of its key";

/// Why an address cannot be used for a store.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaceError {
    /// The host is another machine, and nothing is encrypted.
    #[error(
        "{host}: that is not this machine, and whoever is on the way there could read and change \
         everything: name keys on both sides, with lend --allow KEY, and behind the store's \
         address as lend prints it (#STORE+KEY)"
    )]
    NotLocal {
        /// The host.
        host: String,
    },
    /// The host is unknown.
    #[error("{host}: {why}")]
    Unknown {
        /// The host.
        host: String,
        /// What the system says.
        why: String,
    },
    /// Nobody has said yet what the name of the host means.
    #[error(
        "{host}: no name server has answered for {} s: give the machine's address in place of its \
         name, or see that name servers answer",
        .after.0 / 1_000_000_000
    )]
    Unanswered {
        /// The host.
        host: String,
        /// How long it was waited for.
        after: Nanos,
    },
}

/// Where a store is, and which one it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// Where its server listens.
    pub at: NbdAddress,
    /// Its name; any store is taken if none is given.
    pub store: Option<StoreId>,
    /// The key of the machine that lends it: what goes there is encrypted then.
    pub key: Option<PublicKey>,
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            NbdAddress::Unix(path) => write!(f, "unix:{}", path.display())?,
            NbdAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp:[{host}]:{port}")?;
            }
            NbdAddress::Tcp { host, port } => write!(f, "tcp:{host}:{port}")?,
        }
        match (&self.store, &self.key) {
            (Some(store), Some(key)) => write!(f, "#{}+{key}", store_name(store)),
            (Some(store), None) => write!(f, "#{}", store_name(store)),
            (None, Some(key)) => write!(f, "#{key}"),
            (None, None) => Ok(()),
        }
    }
}

impl StoreAddress {
    /// The address with an absolute path, for programs in other working directories.
    #[must_use]
    pub fn absolute(&self) -> Self {
        let at = match &self.at {
            NbdAddress::Unix(path) => {
                NbdAddress::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
            }
            other @ NbdAddress::Tcp { .. } => other.clone(),
        };
        Self { at, ..*self }
    }
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { given: text.to_owned(), expected: EXPECTED };
        let (at, (store, key)) = match text.rsplit_once('#') {
            Some((at, who)) => (at, parse_who(who).ok_or_else(wrong)?),
            None => (text, (None, None)),
        };
        let parsed: NbdAddress = at.parse().map_err(|_| wrong())?;
        // There is no registered port for stores, so the user must name one.
        let has_port = at.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if matches!(parsed, NbdAddress::Tcp { .. }) && !has_port {
            return Err(wrong());
        }
        Ok(Self { at: parsed, store, key })
    }
}

/// What follows `#`: a store's name, a key, or both.
fn parse_who(text: &str) -> Option<(Option<StoreId>, Option<PublicKey>)> {
    let key = |text: &str| text.parse().ok();
    Some(match text.split_once('+') {
        Some((store, text)) => (Some(parse_store(store)?), Some(key(text)?)),
        None => match parse_store(text) {
            Some(store) => (Some(store), None),
            None => (None, Some(key(text)?)),
        },
    })
}

/// A store's name.
#[must_use]
pub fn parse_store(text: &str) -> Option<StoreId> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    number.map(u128::to_be_bytes)
}

/// Where to connect to for `at`, or to listen: on this machine, unless what goes there is `sealed`
/// by keys. Waits for name servers: not for a thread that serves clients.
///
/// # Errors
/// If `at` is on another machine and nothing is encrypted, or is not known.
pub fn peer_at(at: &NbdAddress, sealed: bool) -> Result<Peer, PlaceError> {
    let (host, port) = match at {
        NbdAddress::Unix(path) => return Ok(Peer::Unix(path.clone())),
        NbdAddress::Tcp { host, port } => (host, *port),
    };
    let found = (host.as_str(), port).to_socket_addrs();
    let unknown =
        |error: io::Error| PlaceError::Unknown { host: host.clone(), why: error.to_string() };
    peer_of(host, &found.map_err(unknown)?.collect::<Vec<_>>(), sealed)
}

/// Which of a host's addresses is used.
///
/// # Errors
/// If there is none, or one is another machine's and nothing is encrypted.
pub(super) fn peer_of(host: &str, found: &[SocketAddr], sealed: bool) -> Result<Peer, PlaceError> {
    let host = host.to_owned();
    if !sealed && found.iter().any(|address| !address.ip().is_loopback()) {
        return Err(PlaceError::NotLocal { host });
    }
    match found.first() {
        // The first address is also the one that a listener binds.
        Some(first) => Ok(Peer::Tcp(*first)),
        None => Err(PlaceError::Unknown { host, why: "it has no address".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_stores_come_back_as_they_are_written() {
        let store = "00112233445566778899aabbccddeeff";
        for text in [
            "unix:/run/store.sock".to_owned(),
            format!("unix:/run/a#b.sock#{store}"),
            "tcp:127.0.0.1:7000".to_owned(),
            format!("tcp:[::1]:7000#{store}"),
            format!("tcp:[2001:db8::1]:7000#{}", "0f".repeat(32)),
            format!("tcp:192.0.2.1:7000#{store}+{}", "e1".repeat(32)),
        ] {
            let parsed: StoreAddress = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        for bad in [
            "",
            "unix:",
            "tcp:localhost",
            "tcp:[::1]",
            "tcp:h:0",
            "unix:/a#12",
            "unix:/a#+",
            "/run/a",
        ] {
            assert!(bad.parse::<StoreAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_machines_are_asked_with_keys_alone() {
        let at = |text: &str| peer_at(&text.parse::<StoreAddress>().unwrap().at, false);
        assert_eq!(at("tcp:127.0.0.1:7"), Ok(Peer::Tcp(([127, 0, 0, 1], 7).into())));
        assert!(at("tcp:[::1]:7").is_ok() && at("unix:/x").is_ok());
        for far in ["tcp:192.0.2.1:7", "tcp:0.0.0.0:7", "tcp:[2001:db8::1]:7"] {
            assert!(matches!(at(far), Err(PlaceError::NotLocal { .. })), "{far}");
            let sealed = peer_at(&far.parse::<StoreAddress>().unwrap().at, true);
            assert!(sealed.is_ok(), "{sealed:?}");
        }
    }
}
