//! The data directory and the secret files in it: for their owner only, whatever the umask.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rand::Rng;

/// Makes the directory, for its owner only. One that is there stays as it is.
///
/// # Errors
/// If it cannot be made, or is no directory that this user may write.
pub fn prepare_data_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if is_open_to_others(path)? {
        tracing::warn!(
            "Others can read or change the data directory {}: run chmod 700 on it",
            path.display()
        );
    }
    Ok(())
}

/// Whether group or world may read or change a file or directory.
///
/// # Errors
/// If its mode cannot be read.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.mode() & 0o066 != 0)
}

/// Writes a secret into a new file, 0600 from its first moment. The file appears whole or not at
/// all.
///
/// # Errors
/// If there is one already, or it cannot be written.
pub fn write_secret(path: &Path, secret: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".secret")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    // The mode that was asked for is cut by the umask, never widened; this makes it exact.
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(secret)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Reads a secret file, and warns if others can read it too. `None` if there is none.
///
/// # Errors
/// If it cannot be read.
pub fn read_secret(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if is_open_to_others(path)? {
        tracing::warn!(
            "Others can read or change the secret file {}: run chmod 600 on it",
            path.display()
        );
    }
    let mut secret = Vec::new();
    io::Read::read_to_end(&mut file, &mut secret)?;
    Ok(Some(secret))
}

/// Reads a file of 32 random bytes, and makes it if there is none.
///
/// # Errors
/// If it cannot be read or made, or holds something else.
pub fn random_key_file(path: &Path, random: &mut impl Rng) -> io::Result<[u8; 32]> {
    let bytes = match read_secret(path)? {
        Some(bytes) => bytes,
        None => {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            write_secret(path, &bytes)?;
            return Ok(bytes);
        }
    };
    bytes.try_into().map_err(|_| {
        let what =
            format!("{} does not hold 32 bytes: move it away to make a new one", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_its_owners_only_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_secret(&path, b"first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(write_secret(&path, b"second").is_err());
        assert_eq!(read_secret(&path).unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_key_file_is_made_once_and_read_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = random_key_file(&path, &mut rand::rng()).unwrap();
        assert_eq!(random_key_file(&path, &mut rand::rng()).unwrap(), made);
        fs::write(&path, b"short").unwrap();
        assert!(random_key_file(&path, &mut rand::rng()).is_err());
    }

    #[test]
    fn a_new_data_directory_is_its_owners_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        prepare_data_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert!(!is_open_to_others(&path).unwrap());
    }
}
