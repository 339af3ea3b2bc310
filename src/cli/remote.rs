//! The running gateway, as reached over its admin listener.

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use http::{Method, StatusCode, header};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    admin::{AdminKey, BadAdminKey},
    config::{Config, ConfigError, Surroundings},
};

const KEY_VARIABLE: &str = "CODEX_EDGE_ADMIN_KEY";

/// No management request takes longer, not even one that waits for the sign-in service.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How to find the gateway.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The admin listener's URL; without it the configuration names it
    #[arg(long, value_name = "URL", env = "CODEX_EDGE_ADMIN_URL", global = true)]
    admin_url: Option<String>,
    /// The gateway's configuration; without it the usual places are looked at
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// A way to the management of one gateway.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    url: Url,
    key: AdminKey,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    #[error("{0} is no URL of an admin listener: give one like http://127.0.0.1:8318")]
    BadUrl(String),
    #[error("{KEY_VARIABLE} holds no admin key: {0}")]
    BadKey(#[from] BadAdminKey),
    #[error("cannot read the admin key {}: {source}; run this as the gateway's user, or set {KEY_VARIABLE}", path.display())]
    KeyFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there is no admin key {}: start the gateway once with \"codex-edge serve\", or set {KEY_VARIABLE}", .0.display())]
    NoKey(PathBuf),
    #[error("no gateway answers at {0}: start it with \"codex-edge serve\", or give --admin-url")]
    NotRunning(Url),
    #[error("the gateway at {0} does not answer in time: look at its log")]
    Late(Url),
    #[error(
        "the admin key is not the gateway's: set {KEY_VARIABLE} to the content of its key file"
    )]
    WrongKey,
    #[error("the gateway refused: {0}")]
    Refused(String),
    #[error(
        "what answers at {0} is no codex-edge: give the admin listener's address with --admin-url"
    )]
    Stranger(Url),
    #[error(
        "this names nobody: \"codex-edge users list\" and \"codex-edge accounts list\" show the names"
    )]
    BadName,
    #[error("the request cannot be made: {0}")]
    Request(#[source] reqwest::Error),
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

// === impl Target ===

impl Target {
    pub(super) fn load_config(&self) -> Result<Config, ConfigError> {
        let surroundings = Surroundings::of_process(self.config.clone());
        Config::load(&surroundings).map(|it| it.config)
    }

    /// Whether a gateway is named, beside the one of the configuration.
    pub(super) fn names_a_gateway(&self) -> bool {
        self.admin_url.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// The gateway that is meant. `config` is this machine's, unless everything is given.
    pub(super) fn resolve(&self, config: &Config) -> Result<Remote, RemoteError> {
        let url = match self.admin_url.as_deref().filter(|it| !it.is_empty()) {
            Some(given) => parse(given)?,
            None => parse(&format!("http://{}", reachable(config.server.admin_listen)))?,
        };
        let client = Client::builder()
            // The admin key goes to the listener itself and nowhere else.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(TIMEOUT)
            .build()
            .map_err(RemoteError::Request)?;
        Ok(Remote { client, url, key: find_key(config)? })
    }
}

fn parse(url: &str) -> Result<Url, RemoteError> {
    let bad = || RemoteError::BadUrl(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| bad())?;
    let plain = parsed.username().is_empty() && parsed.password().is_none();
    let is_web = matches!(parsed.scheme(), "http" | "https") && parsed.has_host();
    if plain && is_web { Ok(parsed) } else { Err(bad()) }
}

/// The address by which a listener on all addresses is reached from its own machine.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn find_key(config: &Config) -> Result<AdminKey, RemoteError> {
    if let Ok(text) = env::var(KEY_VARIABLE)
        && !text.is_empty()
    {
        return Ok(AdminKey::new(&text)?);
    }
    let path = &config.admin.key_file;
    match AdminKey::load(path) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err(RemoteError::NoKey(path.clone())),
        Err(source) => Err(RemoteError::KeyFile { path: path.clone(), source }),
    }
}

// === impl Remote ===

impl Remote {
    /// Sends a management request; `path` holds its segments. What has no content is null.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> Result<Value, RemoteError> {
        let body = body.map(|it| Zeroizing::new(it.to_string().into_bytes()));
        self.management(method, path, body).await
    }

    /// The same with a body that may hold secrets.
    pub(super) async fn management(
        &self,
        method: Method,
        path: &[&str],
        body: Option<Zeroizing<Vec<u8>>>,
    ) -> Result<Value, RemoteError> {
        // A URL has no room for these as segments.
        if path.iter().any(|it| matches!(*it, "" | "." | "..")) {
            return Err(RemoteError::BadName);
        }
        let mut url = self.url.clone();
        url.path_segments_mut()
            .map_err(|()| RemoteError::BadUrl(self.url.to_string()))?
            .pop_if_empty()
            .extend(["v0", "management"])
            .extend(path);
        let key = self.key.authorization().map_err(|_| BadAdminKey)?;
        let mut request = self.client.request(method, url).header(header::AUTHORIZATION, key);
        if let Some(mut body) = body {
            request = request
                .header(header::CONTENT_TYPE, "application/json")
                .body(std::mem::take(&mut *body));
        }
        let answer = request.send().await.map_err(|error| self.unreached(error))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| self.unreached(error))?;
        self.read(status, &bytes)
    }

    fn read(&self, status: StatusCode, body: &[u8]) -> Result<Value, RemoteError> {
        let stranger = || RemoteError::Stranger(self.url.clone());
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        if status.is_success() {
            return serde_json::from_slice(body).map_err(|_| stranger());
        }
        let told: ErrorBody = serde_json::from_slice(body).map_err(|_| stranger())?;
        Err(match status {
            StatusCode::UNAUTHORIZED => RemoteError::WrongKey,
            _ => RemoteError::Refused(told.error.message),
        })
    }

    fn unreached(&self, error: reqwest::Error) -> RemoteError {
        if error.is_connect() {
            RemoteError::NotRunning(self.url.clone())
        } else if error.is_timeout() {
            RemoteError::Late(self.url.clone())
        } else if error.is_builder() {
            RemoteError::Request(error)
        } else {
            RemoteError::Stranger(self.url.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_over_loopback() {
        let table =
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")];
        for (listen, reached) in table {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), reached);
        }
    }

    #[test]
    fn only_a_plain_web_url_is_taken() {
        for url in ["127.0.0.1:8318", "ftp://host", "http://me:secret@host", "", "http://"] {
            assert!(parse(url).is_err(), "{url}");
        }
        assert!(parse("https://gateway.example/below").is_ok());
    }
}
