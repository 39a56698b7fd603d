//! Sources of the workspace, for tests that check all of them.

use std::fs;
use std::path::{Path, PathBuf};

use setup::root;

/// Folders of packages.
const FOLDERS: [&str; 4] = ["libs", "services", "src", "tests"];

/// Returns path and text of each file with `extension`, the path from the root of the work tree.
pub(crate) fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        append(&root().join(folder), extension, &mut files);
    }
    files
}

fn append(folder: &Path, extension: &str, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of the work tree can be read") {
        let path = entry.expect("a folder of the work tree can be read").path();
        if path.is_dir() {
            append(&path, extension, files);
        } else if path.extension().is_some_and(|it| it == extension) {
            let text = fs::read_to_string(&path).expect("a source file is a text");
            let path = path.strip_prefix(root()).expect("the file is in the work tree");
            files.push((path.to_owned(), text));
        }
    }
}
