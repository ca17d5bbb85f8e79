//! Where and how a volume is exported over NBD.

use std::path::PathBuf;

use clap::Args;
use manylogs_serve::NbdAddress;
use manylogs_serve::nbdkit::Tls;

/// The NBD export.
#[derive(Debug, Args)]
#[command(next_help_heading = "NBD")]
pub(crate) struct NbdArgs {
    /// Over NBD: at `unix:PATH`, for this user alone, or `tcp:HOST[:PORT]`. Prints the URI.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["as_loop", "file"])]
    pub(crate) nbd: Option<NbdAddress>,
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
    pub(crate) fn tls(&self) -> Option<Tls> {
        let certificates = self.tls_certificates.clone().map(Tls::Certificates);
        certificates.or_else(|| self.tls_psk.clone().map(Tls::Keys))
    }

    /// Whether nbdkit serves: there is TLS, or the user names its plugin.
    pub(crate) const fn wants_nbdkit(&self) -> bool {
        self.tls_certificates.is_some() || self.tls_psk.is_some() || self.nbdkit_plugin.is_some()
    }
}
