//! Both sides prove keys, and encrypt what they send: TLS 1.3 with raw public keys (RFC 7250) of
//! Ed25519.

mod sealed;

use std::sync::Arc;

use manylogs_plant::{self as plant, Bug};
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

pub(super) use sealed::Sealed;

use super::keys::{KEY_BYTES, PublicKey};

/// Whether this program can encrypt.
pub(super) const IS_THERE: bool = true;

/// What DER puts before a public key of Ed25519 (RFC 8410, section 4), and before a private one
/// (section 7).
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const PRIVATE_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A machine's key pair.
#[derive(Clone, Debug)]
pub(super) struct Pair(Arc<CertifiedKey>);

/// The settings of a client that talks to one store alone.
pub(super) type ClientSeal = Arc<ClientConfig>;
/// The settings of a store that serves some clients alone.
pub(super) type StoreSeal = Arc<ServerConfig>;

impl Pair {
    /// The pair of a private key, and its public key.
    pub(super) fn of_private(private: &[u8; KEY_BYTES]) -> Option<(Self, PublicKey)> {
        let der = PrivatePkcs8KeyDer::from([&PRIVATE_HEAD[..], private].concat());
        let key = provider().key_provider.load_private_key(PrivateKeyDer::from(der));
        let key = key.ok()?;
        let raw = CertificateDer::from(key.public_key()?.to_vec());
        let public = public_key(&raw)?;
        Some((Self(Arc::new(CertifiedKey::new(vec![raw], key))), public))
    }

    /// A pair that shows the public key of `other` without its private key.
    #[cfg(test)]
    pub(super) fn showing(&self, other: &Self) -> Self {
        let (raw, key) = (other.0.cert.clone(), Arc::clone(&self.0.key));
        Self(Arc::new(CertifiedKey::new(raw, key)))
    }

    /// The settings of a client that talks to the store with this key alone.
    ///
    /// # Errors
    /// Why nothing can be encrypted.
    pub(super) fn of_client(&self, store: PublicKey) -> Result<ClientSeal, String> {
        let known = Known::new(vec![store], "the store");
        let resolver = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.0));
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(known))
            .with_client_cert_resolver(Arc::new(resolver));
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// The settings of a store that serves clients with these keys alone.
    ///
    /// # Errors
    /// Why nothing can be encrypted.
    pub(super) fn of_store(&self, allowed: Vec<PublicKey>) -> Result<StoreSeal, String> {
        let known = Known::new(allowed, "the client");
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.0));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(Arc::new(known))
            .with_cert_resolver(Arc::new(resolver));
        // Nothing is resumed: a key that was taken off the list would still be let in.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

fn public_key(raw: &CertificateDer<'_>) -> Option<PublicKey> {
    raw.strip_prefix(&PUBLIC_HEAD)?.try_into().ok().map(PublicKey)
}

/// The library that encrypts and signs.
fn provider() -> CryptoProvider {
    ring::default_provider()
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
        let key = public_key(raw).ok_or(CertificateError::BadEncoding)?;
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
