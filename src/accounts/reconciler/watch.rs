//! Hints from the file system. They may be missing or too many: looking regularly is what counts.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};

use super::inbox::Inbox;

/// Watches the directory, whichever one bears its name.
pub(super) struct Watch {
    root: PathBuf,
    inbox: Arc<Inbox>,
    watched: Option<Watched>,
    /// It was told that watching fails.
    told: bool,
}

struct Watched {
    /// Device and inode.
    place: (u64, u64),
    /// Without one the directory cannot be watched; that is not tried again and again.
    _watcher: Option<RecommendedWatcher>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(root: PathBuf, inbox: Arc<Inbox>) -> Self {
        Self { root, inbox, watched: None, told: false }
    }

    /// Watches the directory if another one has taken its place.
    pub(super) fn keep_up(&mut self) {
        let Some(place) = place(&self.root) else {
            self.watched = None;
            return;
        };
        if self.watched.as_ref().is_some_and(|it| it.place == place) {
            return;
        }
        let watcher = match watch(&self.root, Arc::clone(&self.inbox)) {
            Ok(watcher) => {
                // What changed before the watch began gave no hint.
                self.inbox.hint();
                Some(watcher)
            }
            Err(error) => {
                self.tell(&error);
                None
            }
        };
        self.watched = Some(Watched { place, _watcher: watcher });
    }

    fn tell(&mut self, error: &notify::Error) {
        if !self.told {
            self.told = true;
            // The error may name the path, and its kind says enough.
            tracing::warn!(
                "The credential directory cannot be watched ({}): changes are seen at the next \
                 regular look, see auth.rescan_interval",
                kind(error)
            );
        }
    }
}

fn watch(root: &Path, inbox: Arc<Inbox>) -> notify::Result<RecommendedWatcher> {
    let heard = move |event: notify::Result<Event>| {
        // An error means that events were lost.
        if event.as_ref().map_or(true, is_change) {
            inbox.hint();
        }
    };
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(heard, config)?;
    // A link to the directory would be watched itself, and nothing behind it.
    watcher.watch(&fs::canonicalize(root)?, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Our own reading is no change.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

fn kind(error: &notify::Error) -> String {
    match &error.kind {
        notify::ErrorKind::Io(error) => error.kind().to_string(),
        notify::ErrorKind::MaxFilesWatch => "the system's limit of watches is reached".to_owned(),
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::PathNotFound
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_) => "unknown".to_owned(),
    }
}

fn place(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}
