//! Where and how a volume is exported over NBD.

use std::path::PathBuf;

use clap::Args;
use manylogs_serve::NbdAddress;
use manylogs_serve::nbdkit::Tls;

/// How the volume is exported over NBD.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "NBD")]
pub(crate) struct NbdArgs {
    /// Serve over NBD, at `unix:PATH`, for this user alone, or at `tcp:HOST[:PORT]`. Prints the
    /// URI.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["as_loop", "file"])]
    pub(crate) nbd: Option<NbdAddress>,
    /// Allow TCP without TLS: whoever reaches the port reads and writes everything.
    #[arg(long, requires = "nbd", conflicts_with_all = ["tls_certificates", "tls_psk"])]
    pub(crate) nbd_insecure: bool,
    /// Require TLS, and let in only clients whose certificate the authority in this directory
    /// signed (ca-cert.pem, server-cert.pem, server-key.pem). TLS is done by nbdkit.
    #[arg(long, value_name = "DIR", requires = "nbd", conflicts_with = "tls_psk")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Require TLS, and let in only clients that have a key of this file (made by `psktool`).
    #[arg(long, value_name = "FILE", requires = "nbd")]
    pub(crate) tls_psk: Option<PathBuf>,
    /// Serve by nbdkit with this plugin. When not given, TLS uses the plugin beside the program, in
    /// ../lib/nbdkit/plugins, or among nbdkit's plugins.
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
