//! The images of the Dockerfile, built without a registry: base images are made by mmdebstrap, programs and the in-memory environment
//! are those of this work tree.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use setup::environment::Environment;
use setup::{program, root, run};

use super::dockerfile;
use super::engine::Engine;

/// The targets that the control plane needs, with the images' names in compose.yaml.
const CONTROL: [(&str, &str); 2] = [("etcd", "tinwright-etcd"), ("tinwright", "tinwright")];
/// The targets that machines need in addition.
const MACHINES: [(&str, &str); 4] = [
    ("netboot", "tinwright-netboot"),
    ("machine", "tinwright-machine"),
    ("disk", "tinwright-disk"),
    ("host", "tinwright-host"),
];
/// The image that has the programs.
const PROGRAMS: &str = "tinwright-lab-programs";
/// The image that has kernel and initramfs of the in-memory environment.
const OSIE: &str = "tinwright-lab-osie";

/// Builds the images of the control plane in `engine`, and those of machines, if `has_machines`. Base images are cached in `cache`.
pub(super) fn build(engine: &Engine, cache: &Path, has_machines: bool) -> anyhow::Result<()> {
    let mut arguments = vec![format!("PROGRAMS={PROGRAMS}"), format!("OSIE={OSIE}")];
    import_programs(engine)?;
    if has_machines {
        import_osie(engine)?;
    }
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile"))?;
    for (argument, packages) in dockerfile::packages(&dockerfile) {
        if argument == "BASE" || has_machines {
            let image = format!("tinwright-lab-{}", argument.to_lowercase());
            let packages: Vec<_> = packages.into_iter().collect();
            engine.import(&image, &base(cache, &argument, &packages)?)?;
            arguments.push(format!("{argument}={image}"));
        }
    }
    let machines = MACHINES.iter().filter(|_| has_machines);
    for (target, image) in CONTROL.iter().chain(machines) {
        let mut command = engine.docker();
        // BuildKit builds the stages that the target needs, and no others.
        command.env("DOCKER_BUILDKIT", "1").args(["build", "--quiet"]);
        command.args(["--target", target, "--tag", image]);
        command.args(arguments.iter().flat_map(|it| ["--build-arg", it]));
        run(command.arg(root()).stdout(Stdio::null()))?;
    }
    Ok(())
}

/// Returns the archive of a base image with `packages`; makes it if it is missing.
fn base(cache: &Path, argument: &str, packages: &[String]) -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    packages.hash(&mut hasher);
    let name = format!("{}-{:016x}", argument.to_lowercase(), hasher.finish());
    let script = root().join("tests/setup/assets/base.sh");
    let mut command = Command::new("sh");
    command.arg(script).arg(cache).arg(&name).args(packages);
    run(&mut command)?;
    Ok(cache.join(format!("{name}.tar")))
}

/// Imports an image with the programs that were built, without debug information.
fn import_programs(engine: &Engine) -> anyhow::Result<()> {
    let folder = engine.folder().join("programs");
    std::fs::create_dir_all(folder.join("out"))?;
    for name in ["tinwright", "tinwright-worker"] {
        let stripped = folder.join("out").join(name);
        run(Command::new("strip").arg("-o").arg(stripped).arg(program(name)))?;
    }
    engine.import_folder(PROGRAMS, &folder)
}

/// Imports an image with the in-memory environment; builds that if the worker has changed.
fn import_osie(engine: &Engine) -> anyhow::Result<()> {
    let built = Environment::Worker.build()?;
    let folder = engine.folder().join("osie");
    std::fs::create_dir_all(folder.join("osie"))?;
    for file in ["vmlinuz-x86_64", "initramfs-x86_64"] {
        std::fs::copy(built.join(file), folder.join("osie").join(file)).context(file)?;
    }
    engine.import_folder(OSIE, &folder)
}
