//! Keys by which stores and their clients know each other on other machines.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, remove_file};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use manylogs_plant::{self as plant, Bug};
use manylogs_storage::sync_parent;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
};
use thiserror::Error;

/// Where a machine's key is if no other file is named.
pub const KEY_FILE: &str = "/etc/manylogs/key";

const KEY_BYTES: usize = 32;
/// What DER puts before a public key of Ed25519 (RFC 8410, section 4), and before a private one
/// (section 7).
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const PRIVATE_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The public key (Ed25519) of a machine that lends, or that borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

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
    pair: Arc<CertifiedKey>,
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

impl PublicKey {
    fn of(raw: &CertificateDer<'_>) -> Option<Self> {
        raw.strip_prefix(&PUBLIC_HEAD)?.try_into().ok().map(Self)
    }
}

impl Identity {
    /// The key pair in the file at `path`; a file that is not there is made, durably, for its owner
    /// alone to read. It holds the 64 digits of the private key.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn of_file(path: &Path) -> Result<Self, KeyError> {
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
        Self::of_private(&private).ok_or_else(unknown)
    }

    fn of_private(private: &[u8; KEY_BYTES]) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from([&PRIVATE_HEAD[..], private].concat());
        let key = provider().key_provider.load_private_key(PrivateKeyDer::from(der));
        let key = key.ok()?;
        let raw = CertificateDer::from(key.public_key()?.to_vec());
        let public = PublicKey::of(&raw)?;
        Some(Self { pair: Arc::new(CertifiedKey::new(vec![raw], key)), public })
    }

    /// The public key, by which others let this machine in, or recognise it.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// An identity that shows the public key of `other` without its private key.
    #[cfg(test)]
    pub(crate) fn showing(&self, other: &Self) -> Self {
        let (raw, key) = (other.pair.cert.clone(), Arc::clone(&self.pair.key));
        Self { pair: Arc::new(CertifiedKey::new(raw, key)), public: other.public }
    }

    /// The settings of a client that talks to the store with this key alone.
    pub(crate) fn of_client(&self, store: PublicKey) -> Result<Arc<ClientConfig>, Error> {
        let known = Known::new(vec![store], "the store");
        let resolver = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.pair));
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(known))
            .with_client_cert_resolver(Arc::new(resolver));
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// The settings of a store that serves clients with these keys alone.
    pub(crate) fn of_store(&self, allowed: Vec<PublicKey>) -> Result<Arc<ServerConfig>, Error> {
        let known = Known::new(allowed, "the client");
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.pair));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(known))
            .with_cert_resolver(Arc::new(resolver));
        // Nothing is resumed: a key that was taken off the list would still be let in.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// The library that encrypts and signs.
fn provider() -> CryptoProvider {
    ring::default_provider()
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
    let random = provider().secure_random;
    random.fill(&mut private).map_err(|_| io::Error::other("there are no random numbers"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = writeln!(file, "{}", PublicKey(private)).and_then(|()| file.sync_all());
    written.and_then(|()| sync_parent(path)).inspect_err(|_| {
        // A part of a key would be refused from then on.
        let _ = remove_file(path);
    })
}

/// The keys that this side accepts.
#[derive(Debug)]
struct Known {
    keys: Vec<PublicKey>,
    /// Whose keys they are.
    whose: &'static str,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A key that was not named here.
#[derive(Debug, Error)]
#[error("{whose} has the key {key}, which was not named here")]
struct Stranger {
    whose: &'static str,
    key: PublicKey,
}

impl Known {
    fn new(keys: Vec<PublicKey>, whose: &'static str) -> Self {
        let algorithms = provider().signature_verification_algorithms;
        Self { keys, whose, algorithms }
    }

    fn check(&self, raw: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::of(raw).ok_or(CertificateError::BadEncoding)?;
        if self.keys.contains(&key) || plant::is(Bug::AnyKeyIsKnown) {
            return Ok(());
        }
        let stranger = OtherError(Arc::new(Stranger { whose: self.whose, key }));
        Err(CertificateError::Other(stranger).into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        raw: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if plant::is(Bug::KeyNotProved) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let key = SubjectPublicKeyInfoDer::from(raw.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// TLS 1.2 is not offered.
const fn no_tls12<T>() -> Result<T, Error> {
    Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        raw: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(raw).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        raw: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, raw, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        raw: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(raw).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        raw: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, raw, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
