//! The root certificates that upstream connections are checked against.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject};

const BUNDLE: &str = "upstream-roots.pem";

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{path} holds no readable PEM certificate; give a file of root certificates")]
    NoCertificate { path: PathBuf },
    #[error("cannot write the certificate bundle {path}: {source}")]
    Unwritable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot set up TLS for calls to the upstream's services")]
    Unusable,
}

pub(super) fn bundle(extra: &Path, data_dir: &Path) -> Result<PathBuf, TrustError> {
    let extras = extras(extra)?;
    let text: String = platform().iter().chain(&extras).map(|it| pem(it)).collect();
    let path = data_dir.join(BUNDLE);
    fs::write(&path, text)
        .map_err(|source| TrustError::Unwritable { path: path.clone(), source })?;
    Ok(path)
}

/// The platform's own root certificates; none where it has none that can be read.
pub(super) fn platform() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The certificates of a PEM file, at least one.
pub(super) fn extras(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let unreadable = || TrustError::NoCertificate { path: path.to_owned() };
    let found: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|_| unreadable())?;
    if found.is_empty() { Err(unreadable()) } else { Ok(found) }
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
