//! `codex-edge check`: reads what `serve` would read, changes nothing, and tells everything that is
//! wrong at once.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{BAD_CONFIG, report};
use crate::{
    accounts::{
        self, LoadError,
        directory::{self, DirectoryError},
        labels::Labels,
    },
    admin::AdminKey,
    clock::Clock,
    config::{Config, ConfigError, EdgeProtocol, Surroundings, TlsFiles},
    storage::{Storage, StorageError},
};

/// What was found. A fault keeps `serve` from starting; a notice is worth mending.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<String>,
    notices: Vec<String>,
    accounts: usize,
}

pub(super) fn run(file: Option<PathBuf>) -> ExitCode {
    let loaded = match Config::load(&Surroundings::of_process(file)) {
        Ok(loaded) => loaded,
        Err(ConfigError::Invalid(problems)) => {
            problems.iter().for_each(|it| report(&it.to_string()));
            return ExitCode::from(BAD_CONFIG);
        }
        Err(error @ (ConfigError::Unreadable { .. } | ConfigError::Syntax { .. })) => {
            report(&error.to_string());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let found = look(&loaded.config);
    found.notices.iter().for_each(|it| report(&format!("notice: {it}")));
    found.faults.iter().for_each(|it| report(it));
    if !found.faults.is_empty() {
        return ExitCode::FAILURE;
    }
    let source = loaded.file.map_or_else(
        || "no configuration file, so the defaults hold".to_owned(),
        |it| format!("configuration {}", it.display()),
    );
    let accounts = match found.accounts {
        1 => "1 account".to_owned(),
        many => format!("{many} accounts"),
    };
    super::finish(super::print(
        format!("In order: {source}; {accounts} in {}.\n", loaded.config.auth.dir.display())
            .as_bytes(),
    ))
}

fn look(config: &Config) -> Findings {
    let mut found = Findings::default();
    found.look_at_storage(config);
    found.look_at_accounts(config);
    found.look_at_certificates(config);
    if !config.server.is_loopback_only() {
        found.notices.push(
            "server.listen: other machines can reach it, so serve starts only once a user has a \
             key; make one with \"codex-edge users create NAME\" while it listens on loopback"
                .to_owned(),
        );
    }
    found
}

// === impl Findings ===

impl Findings {
    fn look_at_storage(&mut self, config: &Config) {
        let folder = config.server.data_dir.display();
        match Storage::inspect(&config.server.data_dir) {
            Ok(()) => {}
            // The usual case of a check before a restart.
            Err(error @ StorageError::InUse { .. }) => {
                self.notices.push(format!("{folder}: server.data_dir: {error}"));
            }
            Err(error) => self.faults.push(format!("{folder}: server.data_dir: {error}")),
        }
        let key_file = &config.admin.key_file;
        if let Err(error) = AdminKey::load(key_file) {
            let path = key_file.display();
            self.faults.push(format!("{path}: admin.key_file: cannot be used: {error}"));
        }
    }

    fn look_at_accounts(&mut self, config: &Config) {
        let dir = &config.auth.dir;
        let loaded = accounts::load(
            dir,
            config.auth.follow_symlinks,
            &mut Labels::default(),
            &mut rand::rng(),
            Clock::system().now(),
        );
        match loaded {
            Ok(loaded) => {
                self.accounts = loaded.accounts.len();
                let told = loaded.problems.iter().map(|it| {
                    let name = it.path.as_str();
                    let file = dir.join(name.strip_prefix("path:").unwrap_or(name));
                    format!("{}: auth.dir: {}", file.display(), it.reason)
                });
                self.notices.extend(told);
                self.look_at_lock(config);
            }
            Err(LoadError::Directory(DirectoryError { source, .. }))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                let dir = dir.display();
                self.notices.push(format!("{dir}: auth.dir: is not there; serve will make it"));
            }
            Err(error @ LoadError::Directory(DirectoryError { .. })) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let cause = cause.unwrap_or_default();
                self.faults.push(format!(
                    "{}: auth.dir: {error} ({cause}); give it to the gateway's user",
                    dir.display()
                ));
            }
            Err(error @ LoadError::Label(_)) => self.faults.push(error.to_string()),
        }
    }

    /// Whether another gateway uses the directory. Where it is the one of this configuration, its
    /// data directory tells already.
    fn look_at_lock(&mut self, config: &Config) {
        if let Err(StorageError::InUse { .. }) = Storage::inspect(&config.server.data_dir) {
            return;
        }
        if let Err(error) = directory::Lock::acquire(&config.auth.dir) {
            self.notices.push(format!("{}: auth.dir: {error}", config.auth.dir.display()));
        }
    }

    fn look_at_certificates(&mut self, config: &Config) {
        if let EdgeProtocol::Tls(files) = &config.server.protocol {
            self.look_at_pair(files);
        }
        if let Some(path) = &config.upstream.ca_file
            && let Err(fault) = read_certificates(path)
        {
            self.faults.push(format!(
                "{}: upstream.ca_file: {fault}; give a PEM file of root certificates",
                path.display()
            ));
        }
    }

    /// Whether the certificate and the key can be read and belong together.
    fn look_at_pair(&mut self, TlsFiles { cert, key }: &TlsFiles) {
        let chain = read_certificates(cert).map_err(|fault| {
            let wish = "give a PEM file of the certificate and those above it";
            format!("{}: server.tls.cert: {fault}; {wish}", cert.display())
        });
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| {
            let wish = "give the PEM file of the certificate's private key";
            format!("{}: server.tls.key: cannot be read ({error}); {wish}", key.display())
        });
        let (chain, private) = match (chain, private) {
            (Ok(chain), Ok(private)) => (chain, private),
            (chain, private) => {
                self.faults.extend(chain.err());
                self.faults.extend(private.err());
                return;
            }
        };
        let built = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|it| it.with_no_client_auth().with_single_cert(chain, private));
        if let Err(error) = built {
            let wish = "give the key of the certificate in server.tls.cert";
            let fault =
                format!("{}: server.tls.key: cannot be used ({error}); {wish}", key.display());
            self.faults.push(fault);
        }
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain: Vec<CertificateDer<'static>> =
        read.map_err(|error| format!("cannot be read ({error})"))?;
    if chain.is_empty() { Err("holds no certificate".to_owned()) } else { Ok(chain) }
}
