//! Compiles `proto/` into the types and clients this crate re-exports.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;
use protox::Compiler;

/// Messages that no log may show whole.
const SECRET: [&str; 5] = [
    "hegel.GetResponse",
    "hegel.SubscribeResponse",
    "tinwright.instance.v1.Instance",
    "tinwright.power.v1.Bmc",
    "tinwright.workflow.v1.RedeemRequest",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    compile("proto/tinwright", "descriptors.bin")?;
    // What others published, described apart: it is served apart.
    compile("proto/hegel", "hegel.bin")
}

/// Makes types and clients of the proto files below `folder`, and describes them in `descriptors`.
fn compile(folder: &str, descriptors: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    find(Path::new(folder), &mut files)?;
    files.sort();
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    let set = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join(descriptors), set.encode_to_vec())?;
    // Ordered maps and named types: equal messages have equal bytes, and JSON finds their descriptors.
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).enable_type_names();
    // These hold secrets; `debug.rs` shows them without.
    config.skip_debug(SECRET);
    tonic_prost_build::configure().compile_fds_with_config(set, config)?;
    Ok(())
}

/// Gathers the proto files below `dir`.
fn find(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
