//! Where the configuration comes from: flag, environment, files, defaults.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Config, problem::Problems, reader::Reader, sections};

/// What the search looks at. Only [`Surroundings::of_process`] asks the process itself.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// `--config`.
    pub flag: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    /// The last place to look.
    pub system_file: PathBuf,
}

/// A configuration and the file that it was read from, if there was one.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    pub file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{} cannot be read ({source}): mend its name or its mode, or name another file with --config", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not TOML: {message}", path.display())]
    Syntax { path: PathBuf, message: String },
    #[error("{0}")]
    Invalid(Problems),
}

// === impl Surroundings ===

impl Surroundings {
    /// The process's environment and the usual system file.
    pub fn of_process(flag: Option<PathBuf>) -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { flag, env, system_file: PathBuf::from("/etc/codex-edge/config.toml") }
    }

    /// A variable's value; an empty one counts as unset.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|it| !it.is_empty())
    }

    /// The data directory that holds where the configuration names none.
    pub fn data_dir(&self) -> PathBuf {
        let state = self.var("STATE_DIRECTORY").and_then(|it| it.split(':').next());
        if let Some(state) = state {
            return PathBuf::from(state);
        }
        match self.base_dir("XDG_DATA_HOME", ".local/share") {
            Some(base) => base.join("codex-edge"),
            None => PathBuf::from("/var/lib/codex-edge"),
        }
    }

    fn base_dir(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |it: &PathBuf| it.is_absolute();
        self.var(variable)
            .map(PathBuf::from)
            .filter(absolute)
            .or_else(|| self.var("HOME").map(|it| Path::new(it).join(below_home)).filter(absolute))
    }

    /// The file to read: one that was asked for must exist, others may.
    fn find(&self) -> Option<PathBuf> {
        let asked = self.flag.clone().or_else(|| self.var("CODEX_EDGE_CONFIG").map(PathBuf::from));
        if asked.is_some() {
            return asked;
        }
        let own = self.base_dir("XDG_CONFIG_HOME", ".config");
        let own = own.map(|it| it.join("codex-edge/config.toml"));
        own.into_iter().chain([self.system_file.clone()]).find(|it| {
            // A file that is there but out of reach is an error to report, not one to pass over.
            !matches!(fs::metadata(it), Err(error) if error.kind() == io::ErrorKind::NotFound)
        })
    }
}

pub(super) fn load(surroundings: &Surroundings) -> Result<Loaded, ConfigError> {
    let file = surroundings.find();
    let table = file.as_deref().map_or(Ok(toml::Table::new()), read_table)?;
    let reader = Reader::new(file.as_deref(), table, &surroundings.env);
    let config = sections::read(reader, &surroundings.data_dir()).map_err(ConfigError::Invalid)?;
    Ok(Loaded { config, file })
}

fn read_table(path: &Path) -> Result<toml::Table, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    text.parse().map_err(|error: toml::de::Error| {
        let message = error.to_string().trim_end().to_owned();
        ConfigError::Syntax { path: path.to_owned(), message }
    })
}
