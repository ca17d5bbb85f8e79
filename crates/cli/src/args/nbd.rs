//! Where and how a volume is exported over NBD.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

/// The port that is registered for NBD.
const PORT: u16 = 10809;

/// The NBD export.
#[derive(Debug, Args)]
#[command(next_help_heading = "NBD")]
pub(crate) struct NbdArgs {
    /// Over NBD: at `unix:PATH`, for this user alone, or `tcp:HOST[:PORT]`. Prints the URI.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["as_loop", "file"])]
    pub(crate) nbd: Option<Address>,
    /// Over TCP without TLS: whoever reaches the port reads and writes everything.
    #[arg(long, requires = "nbd", conflicts_with_all = ["tls_certificates", "tls_psk"])]
    pub(crate) nbd_insecure: bool,
    /// Only with TLS, and only clients whose certificate the authority in this directory signed
    /// (ca-cert.pem, server-cert.pem, server-key.pem). TLS is nbdkit's.
    #[arg(long, value_name = "DIR", requires = "nbd", conflicts_with = "tls_psk")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Only with TLS, and only clients that have a key of this file (as of `psktool`).
    #[arg(long, value_name = "FILE", requires = "nbd")]
    pub(crate) tls_psk: Option<PathBuf>,
    /// By nbdkit, with this plugin. For TLS it is found beside the program, in
    /// ../lib/nbdkit/plugins or among nbdkit's.
    #[arg(long, value_name = "PATH", requires = "nbd")]
    pub(crate) nbdkit_plugin: Option<PathBuf>,
}

impl NbdArgs {
    pub(crate) const fn has_tls(&self) -> bool {
        self.tls_certificates.is_some() || self.tls_psk.is_some()
    }
}

/// Where metrics are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress {
    pub(crate) host: String,
    /// Zero: one that is free.
    pub(crate) port: u16,
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host_and_port = match text.strip_prefix(':').unwrap_or(text).parse() {
            // To others only if they are named.
            Ok(port) => Some(("127.0.0.1", Some(port))),
            Err(_) => host_port(text).filter(|(host, _)| !host.is_empty()),
        };
        match host_and_port {
            Some((host, Some(port))) => Ok(Self { host: host.to_owned(), port }),
            _ => Err(format!("{text:?}: expected [HOST:]PORT")),
        }
    }
}

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// Without the brackets of IPv6.
    Tcp {
        host: String,
        port: u16,
    },
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?}: expected unix:PATH or tcp:HOST[:PORT]");
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            Some(("tcp", rest)) => tcp(rest).ok_or_else(wanted),
            _ => Err(wanted()),
        }
    }
}

fn tcp(rest: &str) -> Option<Address> {
    let (host, port) = host_port(rest)?;
    let port = port.unwrap_or(PORT);
    // Nobody would hear which port the system chose.
    (!host.is_empty() && port != 0).then(|| Address::Tcp { host: host.to_owned(), port })
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
    fn addresses() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.to_owned(), port });
        assert_eq!("unix:/run/m.sock".parse(), Ok(Address::Unix("/run/m.sock".into())));
        assert_eq!("tcp:localhost".parse(), tcp("localhost", 10809));
        assert_eq!("tcp:[::1]:99".parse(), tcp("::1", 99));
        assert_eq!("tcp:[::1]".parse(), tcp("::1", 10809));
        for bad in ["", "unix:", "/run/m.sock", "tcp:", "tcp:h:0", "tcp:h:x", "tcp:::1", "tcp:[::1"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
