//! Compiles `proto/` into the types and clients this crate re-exports. Generates code for fields
//! marked `secret`, and the tables of nouns, states and calls: the invocations of macros in `src`.

#[path = "build/calls.rs"]
mod calls;
#[path = "build/names.rs"]
mod names;
#[path = "build/nouns.rs"]
mod nouns;
#[path = "build/options.rs"]
mod options;
#[path = "build/requests.rs"]
mod requests;
#[path = "build/secrets.rs"]
mod secrets;
#[path = "build/services.rs"]
mod services;
#[path = "build/states.rs"]
mod states;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use protox::Compiler;
use protox::prost_reflect::DescriptorPool;

use crate::secrets::Secrets;

type BuildResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> BuildResult {
    println!("cargo::rerun-if-changed=proto");
    let pool = compile("tinwright", "descriptors.bin", "secrets.rs")?;
    // Published by Tinkerbell, and not part of our API.
    compile("hegel", "hegel.bin", "hegel_secrets.rs")?;
    let nouns = nouns::all(&pool)?;
    table("attributes", &nouns::attributes(&nouns))?;
    table("calls", &calls::rows(&pool)?)?;
    table("nouns", &nouns::ids(&nouns))?;
    table("noun_table", &nouns::infos(&nouns)?)?;
    table("objects", &nouns::objects(&nouns))?;
    table("requests", &requests::rows(&pool))?;
    table("states", &states::rows(&pool)?)?;
    table("stored", &nouns::stored(&nouns)?)?;
    table("watch_responses", &nouns::watch_responses(&pool))
}

/// Writes an invocation of the macro `name` with `rows`, as the file `<name>.rs`.
fn table(name: &str, rows: &str) -> BuildResult {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    Ok(fs::write(out.join(name).with_extension("rs"), format!("{name}! {{\n{rows}}}\n"))?)
}

/// Generates types and clients of the proto files below `folder`, their `descriptors`, and the code
/// that hides secret fields (`secrets`). Returns the descriptors.
fn compile(folder: &str, descriptors: &str, secrets: &str) -> BuildResult<DescriptorPool> {
    let mut files = Vec::new();
    find(&Path::new("proto").join(folder), &mut files)?;
    files.sort();
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // The compiler encodes the descriptors: prost's own descriptor types would drop our options.
    fs::write(out.join(descriptors), compiler.encode_file_descriptor_set())?;
    let pool = compiler.descriptor_pool();
    let secret = Secrets { option: pool.get_extension_by_name("tinwright.common.v1.secret") };
    fs::write(out.join(secrets), secret.code(&pool)?)?;
    let mut config = prost_build::Config::new();
    // With ordered maps, equal messages have equal bytes. The conversion to JSON finds descriptors
    // by type name.
    config.btree_map(["."]).enable_type_names();
    // On the heap, so that objects without these fields take no more memory.
    config.boxed(".tinwright.hardware.v1.Hardware.enrolment");
    config.boxed(".tinwright.hardware.v1.Hardware.inventory");
    config.boxed(".tinwright.hardware.v1.Hardware.bmc_inventory");
    config.boxed(".tinwright.hardware.v1.Hardware.root_disk");
    config.boxed(".tinwright.instance.v1.Instance.root_disk");
    config.boxed(".tinwright.instance.v1.Instance.placement");
    config.skip_debug(
        secret.messages_with_secrets(&pool).map(|message| message.full_name().to_owned()),
    );
    for oneof in
        secret.messages_with_secrets(&pool).flat_map(|message| message.oneofs().collect::<Vec<_>>())
    {
        config.type_attribute(oneof.full_name(), "#[derive(Debug)]");
    }
    config.service_generator(Box::new(services::ServiceGenerator));
    config.include_file(format!("{folder}_packages.rs"));
    config.compile_fds(compiler.file_descriptor_set())?;
    Ok(pool)
}

/// Appends the proto files below `dir` to `files`.
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
