//! The command line of nbdkit.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::address::NbdAddress;

/// Most requests of one connection under way. Each occupies a thread of nbdkit; writes that arrive
/// together share records.
const THREADS: &str = "64";

/// How clients authenticate and encrypt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// By certificates; this directory holds those of the server and of the authority.
    Certificates(PathBuf),
    /// By pre-shared keys in this file.
    Keys(PathBuf),
}

/// What nbdkit serves, and how.
#[derive(Clone, Debug)]
pub struct NbdkitOptions {
    /// Where clients connect to.
    pub address: NbdAddress,
    /// The file of the plugin: see [`super::find_plugin`].
    pub plugin: PathBuf,
    /// TLS, if it is wanted.
    pub tls: Option<Tls>,
    /// The disk, partition or image.
    pub device: PathBuf,
    /// The plugin's other parameters and their values.
    pub parameters: Vec<(&'static str, OsString)>,
}

impl NbdkitOptions {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("nbdkit");
        // With `--exit-with-parent` nbdkit closes the volume in order even if this process is
        // killed.
        command.args(["--foreground", "--exit-with-parent", "--threads", THREADS]);
        match &self.address {
            NbdAddress::Unix(path) => command.arg("--unix").arg(path),
            NbdAddress::Tcp { host, port } => {
                command.args(["--ipaddr", host, "--port", &port.to_string()])
            }
        };
        match &self.tls {
            Some(Tls::Certificates(dir)) => {
                command.args(["--tls=require", "--tls-verify-peer", "--tls-certificates"]).arg(dir);
            }
            Some(Tls::Keys(file)) => {
                command.args(["--tls=require", "--tls-psk"]).arg(file);
            }
            None => {}
        }
        command.arg("--filter=blocksize").arg(&self.plugin);
        command.arg(parameter("device", self.device.clone().into()));
        // Has nbdkit's filter read, modify and write whole sectors if clients access parts of them.
        command.arg("minblock=512");
        let parameters = self.parameters.iter().cloned();
        command.args(parameters.map(|(key, value)| parameter(key, value)));
        command
    }
}

fn parameter(key: &str, value: OsString) -> OsString {
    let mut parameter = OsString::from(format!("{key}="));
    parameter.push(value);
    parameter
}
