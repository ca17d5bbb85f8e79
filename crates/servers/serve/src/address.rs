//! Where servers listen: addresses for NBD clients and for Prometheus.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The port that is registered for NBD.
const NBD_PORT: u16 = 10809;

/// An address that cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{given:?}: expected {expected}")]
pub struct AddressError {
    /// What was given.
    pub given: String,
    /// The valid forms.
    pub expected: &'static str,
}

/// Where clients of NBD connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A socket in the file system, for this user alone.
    Unix(PathBuf),
    /// A port of this machine.
    Tcp {
        /// A name or an address; IPv6 addresses have no brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress {
    /// A name or an address; the loopback address unless the user names a host.
    pub host: String,
    /// The port; zero for a free one.
    pub port: u16,
}

impl NbdAddress {
    /// The URI in the form of libnbd and qemu.
    #[must_use]
    pub fn uri(&self, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let path = escaped(path.as_os_str().as_encoded_bytes());
                format!("{scheme}+unix:///?socket={path}")
            }
            Self::Tcp { host, port } if host.contains(':') => {
                format!("{scheme}://[{host}]:{port}/")
            }
            Self::Tcp { host, port } => format!("{scheme}://{host}:{port}/"),
        }
    }
}

fn escaped(path: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.iter()
        .map(|&byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp { host, port } => write!(f, "{host} port {port}"),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.host, self.port)
    }
}

impl FromStr for NbdAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(PathBuf::from(path))),
            Some(("tcp", rest)) => tcp(rest),
            _ => None,
        };
        let expected = "unix:PATH or tcp:HOST[:PORT]";
        parsed.ok_or_else(|| AddressError { given: text.to_owned(), expected })
    }
}

fn tcp(rest: &str) -> Option<NbdAddress> {
    let (host, port) = host_port(rest)?;
    let port = port.unwrap_or(NBD_PORT);
    // Port 0 (any free port) is refused: no client would be told which port it is.
    (!host.is_empty() && port != 0).then(|| NbdAddress::Tcp { host: host.to_owned(), port })
}

impl FromStr for MetricsAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let host_and_port = match text.strip_prefix(':').unwrap_or(text).parse() {
            // Other machines can connect only if the user names a host.
            Ok(port) => Some(("127.0.0.1", Some(port))),
            Err(_) => host_port(text).filter(|(host, _)| !host.is_empty()),
        };
        match host_and_port {
            Some((host, Some(port))) => Ok(Self { host: host.to_owned(), port }),
            _ => Err(AddressError { given: text.to_owned(), expected: "[HOST:]PORT" }),
        }
    }
}

/// `HOST`, `HOST:PORT`, `[HOST]` or `[HOST]:PORT`.
fn host_port(rest: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = rest.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
        (host, port)
    } else {
        rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)))
    };
    match port {
        Some(port) => port.parse().ok().map(|port| (host, Some(port))),
        None => Some((host, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_local_unless_a_host_is_named() {
        let at = |host: &str, port| Ok(MetricsAddress { host: host.to_owned(), port });
        assert_eq!("9469".parse(), at("127.0.0.1", 9469));
        assert_eq!(":0".parse(), at("127.0.0.1", 0));
        assert_eq!("0.0.0.0:9469".parse(), at("0.0.0.0", 9469));
        assert_eq!("[::1]:9469".parse(), at("::1", 9469));
        for bad in ["", "host", "host:", ":x", "[]:1", "h:70000"] {
            assert!(bad.parse::<MetricsAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_of_nbd_are_paths_and_ports() {
        let tcp = |host: &str, port| Ok(NbdAddress::Tcp { host: host.to_owned(), port });
        assert_eq!("unix:/run/m.sock".parse(), Ok(NbdAddress::Unix("/run/m.sock".into())));
        assert_eq!("tcp:localhost".parse(), tcp("localhost", 10809));
        assert_eq!("tcp:[::1]:99".parse(), tcp("::1", 99));
        assert_eq!("tcp:[::1]".parse(), tcp("::1", 10809));
        for bad in ["", "unix:", "/run/m.sock", "tcp:", "tcp:h:0", "tcp:h:x", "tcp:::1", "tcp:[::1"]
        {
            assert!(bad.parse::<NbdAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn uris_say_where_in_every_case() {
        let tcp = |host: &str| NbdAddress::Tcp { host: host.to_owned(), port: 99 };
        assert_eq!(tcp("::1").uri(false), "nbd://[::1]:99/");
        assert_eq!(tcp("disk.example").uri(true), "nbds://disk.example:99/");
        let unix = NbdAddress::Unix("/run/a b&c.sock".into());
        assert_eq!(unix.uri(false), "nbd+unix:///?socket=/run/a%20b%26c.sock");
    }
}
