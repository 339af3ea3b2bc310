//! Where logins are handed in: the running gateway, or, where none runs, the credential directory
//! itself. Both do it by the same code.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::Method;
use serde_json::json;
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use super::remote::{self, Remote, RemoteError, Target};
use crate::{
    accounts::{
        directory::{self, DirectoryInUse},
        files::{CredentialFiles, Steps},
        import::{Intake, Mode, Offer, Origin},
        login::{Callback, LoginError, LoginId, Logins},
        oauth::OAuth,
        tasks::Tasks,
    },
    admin::{ImportAnswer, LoginAnswer, ShownImport, ShownLogin},
    clock::Clock,
    config::Config,
    egress::{Egress, TrustError},
    storage::{self, Storage, StorageError},
};

/// How long a listener on this machine may take to answer at all.
const KNOCK: Duration = Duration::from_secs(2);

/// As much as goes into one request, well below what a gateway takes.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// As many files as a gateway writes while somebody waits for one answer.
const BATCH_FILES: usize = 200;

pub(super) enum Desk {
    Gateway(Remote),
    Directory(Logins),
}

/// How somebody wants to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Device,
    Pkce { redirect_uri: String },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DeskError {
    #[error(transparent)]
    Gateway(#[from] RemoteError),
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(
        "a gateway uses this machine's accounts, but its admin listener is not at {0}: give --admin-url"
    )]
    Elsewhere(SocketAddr),
    #[error("cannot make the credential directory {path}: {source}; choose another auth.dir", path = path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the gateway's answer is not understood ({0}): use the codex-edge of its version")]
    Answer(#[from] serde_json::Error),
}

// === impl Desk ===

impl Desk {
    /// The gateway that is meant; the directory only if none was named and none runs.
    pub(super) fn open(target: &Target, config: &Config, mode: Mode) -> Result<Self, DeskError> {
        if target.names_a_gateway() || !is_silent(config.server.admin_listen) {
            return Ok(Self::Gateway(target.resolve(config)?));
        }
        if let Err(StorageError::InUse { .. }) = Storage::inspect(&config.server.data_dir) {
            return Err(DeskError::Elsewhere(config.server.admin_listen));
        }
        // A trial makes nothing.
        if mode == Mode::Real {
            make_folder(&config.auth.dir)
                .map_err(|source| DeskError::Folder { path: config.auth.dir.clone(), source })?;
        }
        if let Err(DirectoryInUse(_)) = directory::Lock::acquire(&config.auth.dir) {
            return Err(DeskError::Elsewhere(config.server.admin_listen));
        }
        let egress = Arc::new(Egress::new(&config.upstream)?);
        let (dir, links) = (config.auth.dir.clone(), config.auth.follow_symlinks);
        let files = CredentialFiles::new(dir, links, Steps::default());
        let clock = Clock::system();
        let oauth = OAuth::new(config.upstream.auth_base_url.clone(), egress);
        let intake = Intake::new(files, clock.clone());
        let logins = Logins::new(oauth, intake, clock, Tasks::new(Handle::current()));
        Ok(Self::Directory(logins))
    }

    /// Hands credential files in: each with a name, all of them JSON.
    pub(super) async fn import(
        &self,
        files: Vec<(String, Zeroizing<Vec<u8>>)>,
        mode: Mode,
    ) -> Result<Vec<ShownImport>, DeskError> {
        match self {
            Self::Gateway(remote) => {
                let mut results = Vec::new();
                for body in batches(&files, mode) {
                    let path = ["auths", "import"];
                    let answer = remote.management(Method::POST, &path, Some(body)).await?;
                    let answer: ImportAnswer = serde_json::from_value(answer)?;
                    results.extend(answer.results);
                }
                Ok(results)
            }
            Self::Directory(logins) => {
                let offer = |(name, bytes)| Offer { name, bytes, origin: Origin::Elsewhere };
                let offers = files.into_iter().map(offer).collect();
                let done = logins.intake().take(offers, mode).await;
                Ok(done.into_iter().map(ShownImport::from).collect())
            }
        }
    }

    pub(super) async fn begin(&self, wish: &Wish) -> Result<ShownLogin, DeskError> {
        match (self, wish) {
            (Self::Gateway(remote), wish) => {
                let body = match wish {
                    Wish::Device => json!({"method": "device"}),
                    Wish::Pkce { redirect_uri } => {
                        json!({"method": "pkce", "redirect_uri": redirect_uri})
                    }
                };
                ask(remote, Method::POST, &[], Some(body)).await
            }
            (Self::Directory(logins), Wish::Device) => Ok(logins.begin_device().await?.into()),
            (Self::Directory(logins), Wish::Pkce { redirect_uri }) => {
                Ok(logins.begin_pkce(redirect_uri, &mut rand::rng())?.into())
            }
        }
    }

    pub(super) async fn show(&self, id: &str) -> Result<ShownLogin, DeskError> {
        match self {
            Self::Gateway(remote) => ask(remote, Method::GET, &[id], None).await,
            Self::Directory(logins) => {
                let view = logins.view(&LoginId::from_text(id)).ok_or(LoginError::Unknown)?;
                Ok(view.into())
            }
        }
    }

    /// Brings the address that the browser was sent to.
    pub(super) async fn complete(&self, id: &str, url: &str) -> Result<ShownLogin, DeskError> {
        match self {
            Self::Gateway(remote) => {
                ask(remote, Method::POST, &[id, "complete"], Some(json!({ "url": url }))).await
            }
            Self::Directory(logins) => {
                let callback = Callback::parse(url).map_err(LoginError::from)?;
                Ok(logins.complete(&LoginId::from_text(id), callback).await?.into())
            }
        }
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<(), DeskError> {
        match self {
            Self::Gateway(remote) => {
                let path = ["auths", "login", id];
                remote.management(Method::DELETE, &path, None).await?;
            }
            Self::Directory(logins) => {
                logins.cancel(&LoginId::from_text(id));
            }
        }
        Ok(())
    }
}

async fn ask(
    remote: &Remote,
    method: Method,
    below: &[&str],
    body: Option<serde_json::Value>,
) -> Result<ShownLogin, DeskError> {
    let path = [&["auths", "login"], below].concat();
    let body = body.map(|it| Zeroizing::new(it.to_string().into_bytes()));
    let answer = remote.management(method, &path, body).await?;
    let answer: LoginAnswer = serde_json::from_value(answer)?;
    Ok(answer.login)
}

/// Whether surely nothing listens there.
fn is_silent(admin: SocketAddr) -> bool {
    let knocked = TcpStream::connect_timeout(&remote::reachable(admin), KNOCK);
    knocked.is_err_and(|error| {
        let kind = error.kind();
        // Port 0 stands for any, so nobody can be found by it.
        kind == io::ErrorKind::ConnectionRefused || admin.port() == 0
    })
}

/// Makes the directory for its owner only. What is made belongs to the owner of the folder around
/// it, where permitted, since the gateway may run as somebody else than who calls this.
fn make_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|it| !it.exists()).collect();
    storage::prepare_data_dir(path)?;
    let Some(around) = missing.last().and_then(|it| it.parent()) else { return Ok(()) };
    let owner = std::fs::metadata(around)?;
    for made in missing {
        // Who may not give it away keeps it.
        let _ = chown(made, Some(owner.uid()), Some(owner.gid()));
    }
    Ok(())
}

/// The bodies of as many requests as it takes, each file as it is.
fn batches(files: &[(String, Zeroizing<Vec<u8>>)], mode: Mode) -> Vec<Zeroizing<Vec<u8>>> {
    let tail = format!("],\"dry_run\":{}}}", mode == Mode::DryRun);
    // A trial writes nothing, and tells more the more of it is seen at once.
    let files_max = if mode == Mode::DryRun { usize::MAX } else { BATCH_FILES };
    let (mut bodies, mut room, mut held) = (Vec::new(), 0, 0);
    for (name, bytes) in files {
        let head = format!("{{\"name\":{},\"content\":", serde_json::Value::from(name.as_str()));
        let size = head.len() + bytes.len() + 2;
        match bodies.last_mut() {
            Some(body) if size <= room && held < files_max => {
                let body: &mut Zeroizing<Vec<u8>> = body;
                body.push(b',');
                room -= size;
            }
            Some(_) | None => {
                // All of it at once: a buffer that grows leaves copies of the tokens behind.
                let capacity = BATCH_BYTES.max(size) + tail.len() + 16;
                let mut body = Zeroizing::new(Vec::with_capacity(capacity));
                body.extend_from_slice(b"{\"files\":[");
                bodies.push(body);
                room = BATCH_BYTES.saturating_sub(size);
                held = 0;
            }
        }
        held += 1;
        if let Some(body) = bodies.last_mut() {
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(bytes);
            body.push(b'}');
        }
    }
    for body in &mut bodies {
        body.extend_from_slice(tail.as_bytes());
    }
    bodies
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn file(name: &str, content: &str) -> (String, Zeroizing<Vec<u8>>) {
        (name.to_owned(), Zeroizing::new(content.as_bytes().to_vec()))
    }

    #[test]
    fn files_go_as_they_are_in_as_few_requests_as_hold_them() {
        let small = [file("a\"b", "{\"x\" : 1.50}"), file("c", "{}")];
        let bodies = batches(&small, Mode::DryRun);
        assert_eq!(
            std::str::from_utf8(&bodies[0]).unwrap(),
            r#"{"files":[{"name":"a\"b","content":{"x" : 1.50}},{"name":"c","content":{}}],"dry_run":true}"#
        );
        let large = format!("\"{}\"", "x".repeat(BATCH_BYTES / 2));
        let many = ["1", "2", "3"].map(|it| file(it, &large));
        let bodies = batches(&many, Mode::Real);
        assert_eq!(bodies.len(), 3);
        for body in bodies {
            let value: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(value["files"].as_array().unwrap().len(), 1);
            assert_eq!(value["dry_run"], false);
        }
        let many = vec![file("n", "{}"); BATCH_FILES + 1];
        assert_eq!(batches(&many, Mode::Real).len(), 2);
        assert_eq!(batches(&many, Mode::DryRun).len(), 1);
    }

    #[test]
    fn a_folder_that_is_made_is_its_owners_only() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        make_folder(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        make_folder(&path).unwrap();
    }
}
