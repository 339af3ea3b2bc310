//! `codex-edge accounts import`: takes over credential files.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::{
    CliError,
    desk::{Desk, DeskError},
    remote::Target,
};
use crate::{
    accounts::import::{self, Mode, Refused},
    admin::{ImportAnswer, ShownImport, ShownResult, ShownTaken},
};

const EXAMPLES: &str = "Example:
  codex-edge accounts import ~/.codex/auth.json --dry-run
  codex-edge accounts import ./old-pool
  ssh laptop cat .codex/auth.json | codex-edge accounts import -

Two programs must not refresh one login: sign out where the file came from, or better use
\"codex-edge accounts login\".";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Codex's auth.json or flat token files, folders of them, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// A file of the command line.
struct Given {
    name: String,
    content: Result<Zeroizing<Vec<u8>>, String>,
}

pub(super) fn run(args: &Args, target: &Target, json: bool) -> Result<(), CliError> {
    let config = target.load_config()?;
    let mode = if args.dry_run { Mode::DryRun } else { Mode::Real };
    let given: Vec<Given> = args.files.iter().flat_map(|it| Given::read(it)).collect();
    let results = super::runtime()?.block_on(async {
        let desk = Desk::open(target, &config, mode)?;
        hand_in(&desk, given, mode).await
    })?;
    let refused = results.iter().filter(|it| it.result == ShownResult::Refused).count();
    let total = results.len();
    let text = if json {
        serde_json::to_string_pretty(&ImportAnswer { results })? + "\n"
    } else {
        results.iter().map(|it| tell(it, mode)).collect()
    };
    super::print(text.as_bytes())?;
    if refused == 0 { Ok(()) } else { Err(CliError::Refused { refused, total }) }
}

/// What can be read is handed in; the results come in the order of the files.
async fn hand_in(
    desk: &Desk,
    given: Vec<Given>,
    mode: Mode,
) -> Result<Vec<ShownImport>, DeskError> {
    let (mut results, mut sent, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for Given { name, content } in given {
        match content {
            Ok(bytes) => {
                places.push(results.len());
                sent.push((file_name(&name), bytes));
                // Stands in until the answer is there.
                results.push(refusal(name, Refused::BrokenOff.to_string()));
            }
            Err(why) => results.push(refusal(name, why)),
        }
    }
    if !sent.is_empty() {
        let answers = desk.import(sent, mode).await?;
        for (place, answer) in places.into_iter().zip(answers) {
            if let Some(result) = results.get_mut(place) {
                *result = ShownImport { name: std::mem::take(&mut result.name), ..answer };
            }
        }
    }
    Ok(results)
}

/// The last part of a path, which is all that the gateway needs to know.
fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().map(|it| it.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.to_owned())
}

fn refusal(name: String, error: String) -> ShownImport {
    let (result, account) = (ShownResult::Refused, ShownTaken::default());
    ShownImport { name, result, account, error: Some(error) }
}

fn tell(done: &ShownImport, mode: Mode) -> String {
    let what = match (done.result, mode) {
        (ShownResult::Added, Mode::Real) => "added",
        (ShownResult::Added, Mode::DryRun) => "would be added",
        (ShownResult::Updated, Mode::Real) => "updated",
        (ShownResult::Updated, Mode::DryRun) => "would be updated",
        (ShownResult::Unchanged, Mode::Real | Mode::DryRun) => "unchanged",
        (ShownResult::Refused, Mode::Real | Mode::DryRun) => "refused",
    };
    let details = match &done.error {
        Some(why) => why.clone(),
        None => describe(&done.account),
    };
    let mut text = format!("{}: {what}: {details}\n", done.name);
    for warning in &done.account.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

/// An account in few words.
pub(super) fn describe(account: &ShownTaken) -> String {
    let name = account.label.as_ref().or(account.auth_id.as_ref());
    let name = name.map_or("a new account".to_owned(), |it| format!("account {it}"));
    let plan = account.plan.as_ref().map(|it| format!("plan {it}"));
    let parts = [Some(name), plan, account.email_masked.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

// === impl Given ===

impl Given {
    /// The file of a name, or the files of a folder.
    fn read(path: &Path) -> Vec<Self> {
        let name = path.display().to_string();
        if path.as_os_str() == "-" {
            let content = bytes(io::stdin().lock()).map_err(|it| unreadable(&it));
            return vec![Self::judged(name, content)];
        }
        if !path.is_dir() {
            return vec![Self::of(path)];
        }
        match list(path) {
            Err(error) => vec![Self { name, content: Err(unreadable(&error)) }],
            Ok(files) if files.is_empty() => {
                let why = "it holds no .json: name the folder with the files themselves";
                vec![Self { name, content: Err(why.to_owned()) }]
            }
            Ok(files) => files.iter().map(|it| Self::of(it)).collect(),
        }
    }

    fn of(path: &Path) -> Self {
        let content = match fs::metadata(path) {
            Ok(facts) if !facts.is_file() => {
                Err("it is no regular file: name a file or a folder".to_owned())
            }
            Ok(_) => File::open(path).and_then(bytes).map_err(|it| unreadable(&it)),
            Err(error) => Err(unreadable(&error)),
        };
        Self::judged(path.display().to_string(), content)
    }

    /// Looked at here already: what no gateway would take need not be sent.
    fn judged(name: String, content: Result<Zeroizing<Vec<u8>>, String>) -> Self {
        let content = content.and_then(|mut bytes| {
            import::read(&bytes).map_err(|it| it.to_string())?;
            // A byte order mark has no place within JSON.
            if bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.drain(..3);
            }
            Ok(bytes)
        });
        Self { name, content }
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read ({}): check the name and its mode", error.kind())
}

/// All of it, or one byte more than is ever taken.
fn bytes(source: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let room = import::FILE_BYTES_MAX + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(64 * 1024));
    source.take(room).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a gateway would read of a folder, its own folders apart.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let hidden = matches!(name.first(), None | Some(b'.' | b'~' | b'#'));
        if !hidden && name.ends_with(b".json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
