//! Compiles `proto/` into the types and clients this crate re-exports, and generates code for fields marked `secret`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use protox::Compiler;
use protox::prost_reflect::{
    DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor,
    Value,
};

/// Secret fields of third-party proto files, which cannot carry our option.
const PUBLISHED_SECRETS: [&str; 2] = ["hegel.GetResponse.JSON", "hegel.SubscribeResponse.JSON"];

type BuildResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> BuildResult {
    println!("cargo::rerun-if-changed=proto");
    compile("tinwright", "descriptors.bin", "secrets.rs")?;
    // Published by Tinkerbell, and not part of our API.
    compile("hegel", "hegel.bin", "hegel_secrets.rs")
}

/// Generates types and clients of the proto files below `folder`, their `descriptors`, and the code that hides secret fields
/// (`secrets`).
fn compile(folder: &str, descriptors: &str, secrets: &str) -> BuildResult {
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
    // With ordered maps, equal messages have equal bytes. The conversion to JSON finds descriptors by type name.
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
    tonic_prost_build::configure()
        // Else each client has a function `connect`, which a call of that name cannot have beside it.
        .build_transport(false)
        .include_file(format!("{folder}_packages.rs"))
        .compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
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

/// Generates `Debug` and `Secrets` for messages with fields marked `secret`.
struct Secrets {
    option: Option<ExtensionDescriptor>,
}

impl Secrets {
    /// True if `field` is marked as secret, or listed in [`PUBLISHED_SECRETS`].
    fn is_secret(&self, field: &FieldDescriptor) -> bool {
        let options = field.options();
        let marked = |option| matches!(*options.get_extension(option), Value::Bool(true));
        self.option.as_ref().is_some_and(marked) || PUBLISHED_SECRETS.contains(&field.full_name())
    }

    /// Returns the messages that have a secret field themselves.
    fn messages_with_secrets<'a>(
        &'a self,
        pool: &'a DescriptorPool,
    ) -> impl Iterator<Item = MessageDescriptor> + 'a {
        pool.all_messages().filter(|message| message.fields().any(|field| self.is_secret(&field)))
    }

    /// True if `message`, or a message nested in it, has a secret field.
    fn has_secrets(&self, message: &MessageDescriptor) -> bool {
        self.reaches_secret(message, &mut BTreeSet::new())
    }

    /// True if a secret field is found from `message` on. Messages can contain each other: those in `visited` are left out.
    fn reaches_secret(&self, message: &MessageDescriptor, visited: &mut BTreeSet<String>) -> bool {
        let ours = message.package_name() != "google.protobuf";
        if !ours || !visited.insert(message.full_name().to_owned()) {
            return false;
        }
        message.fields().any(|field| {
            let kind = field.kind();
            self.is_secret(&field)
                || matches!(kind, Kind::Message(inner) if self.reaches_secret(&inner, visited))
        })
    }

    /// True if `field` is a message that has secrets.
    fn has_nested(&self, field: &FieldDescriptor) -> bool {
        matches!(field.kind(), Kind::Message(inner) if self.has_secrets(&inner))
    }

    /// Returns the generated code: `Debug`, `Secrets` and `Sealable` of the messages in `pool`.
    fn code(&self, pool: &DescriptorPool) -> Result<String, std::fmt::Error> {
        let mut code = String::new();
        for message in self.messages_with_secrets(pool) {
            self.debug(&message, &mut code)?;
        }
        for message in pool.all_messages() {
            if !message.is_map_entry() && self.has_secrets(&message) {
                self.clear(&message, &mut code)?;
            }
            if !message.is_map_entry() && message.package_name().starts_with("tinwright.") {
                self.seal(&message, &mut code)?;
            }
        }
        Ok(code)
    }

    /// Writes an implementation of `Debug` without the secret fields.
    fn debug(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        writeln!(code, "impl std::fmt::Debug for {} {{", type_path(message))?;
        writeln!(code, "fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{")?;
        write!(code, "f.debug_struct({:?})", message.name())?;
        let plain =
            |field: &FieldDescriptor| field.containing_oneof().is_none() && !self.is_secret(field);
        for field in message.fields().filter(plain) {
            // The getter of an enum field returns the enum value, whose `Debug` is its name.
            let getter = matches!(field.kind(), Kind::Enum(_)) && !field.is_list();
            let call = if getter { "()" } else { "" };
            write!(code, ".field({0:?}, &self.{0}{call})", field.name())?;
        }
        for oneof in message.oneofs() {
            write!(code, ".field({0:?}, &self.{0})", oneof.name())?;
        }
        writeln!(code, ".finish_non_exhaustive() }} }}")
    }

    /// Writes an implementation of `Secrets`, which clears the secret fields of a message and of nested messages.
    fn clear(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        writeln!(code, "impl crate::secret::Secrets for {} {{", type_path(message))?;
        writeln!(code, "fn clear_secrets(&mut self) {{")?;
        for field in message.fields() {
            let name = field.name().to_lowercase();
            match field.containing_oneof() {
                _ if self.is_secret(&field) => {
                    writeln!(code, "self.{name} = Default::default();")?;
                }
                _ if !self.has_nested(&field) => {}
                Some(oneof) => {
                    let case = format!("{}::{}", oneof_path(message, &oneof), camel(&name));
                    let oneof = oneof.name();
                    writeln!(
                        code,
                        "if let Some({case}(inner)) = &mut self.{oneof} {{ inner.clear_secrets(); }}"
                    )?;
                }
                None => {
                    let clear = "crate::secret::Secrets::clear_secrets";
                    writeln!(code, "self.{name}.iter_mut().for_each({clear});")?;
                }
            }
        }
        writeln!(code, "}} }}")
    }

    /// Writes an implementation of `Sealable`, which takes the secret fields out of a message and of nested messages, and puts them
    /// back.
    fn seal(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        let name = type_path(message);
        if !self.has_secrets(message) {
            return writeln!(code, "impl crate::secret::Sealable for {name} {{}}");
        }
        let (mut own, mut take, mut put) = (String::new(), String::new(), String::new());
        for field in message.fields() {
            let (name, number) = (field.name().to_lowercase(), field.number());
            if self.is_secret(&field) {
                write!(own, "{name}: std::mem::take(&mut self.{name}), ")?;
            } else if self.has_nested(&field) {
                let nested = match field.containing_oneof() {
                    Some(oneof) => {
                        let case = format!("{}::{}", oneof_path(message, &oneof), camel(&name));
                        format!(
                            "if let (index, Some({case}(inner))) = (0, &mut self.{})",
                            oneof.name()
                        )
                    }
                    None => format!("for (index, inner) in self.{name}.iter_mut().enumerate()"),
                };
                writeln!(take, "{nested} {{ part.nest({number}, index, inner.take_secrets()); }}")?;
                writeln!(put, "{nested} {{ part.put_nested({number}, index, inner)?; }}")?;
            }
        }
        writeln!(code, "impl crate::secret::Sealable for {name} {{")?;
        writeln!(code, "fn take_secrets(&mut self) -> crate::secret::SecretPart {{")?;
        match own.is_empty() {
            true => writeln!(code, "let mut part = crate::secret::SecretPart::default();")?,
            false => {
                writeln!(code, "let own = Self {{ {own} ..Default::default() }};")?;
                let mutable = if take.is_empty() { "" } else { "mut " };
                writeln!(code, "let {mutable}part = crate::secret::SecretPart::of(&own);")?;
            }
        }
        writeln!(code, "{take} part }}")?;
        writeln!(code, "fn put_secrets(&mut self, part: &crate::secret::SecretPart)")?;
        writeln!(
            code,
            "-> Result<(), prost::DecodeError> {{ part.put_own(self)?; {put} Ok(()) }} }}"
        )
    }
}

/// Returns the path of the enum that is generated for `oneof` of `message`.
fn oneof_path(message: &MessageDescriptor, oneof: &OneofDescriptor) -> String {
    let parent = type_path(message);
    let (module, name) = parent.rsplit_once("::").unwrap_or(("crate", &parent));
    format!("{module}::{}::{}", snake(name), camel(oneof.name()))
}

/// Returns the path of the type that is generated for `message`.
fn type_path(message: &MessageDescriptor) -> String {
    let package = message.package_name().trim_start_matches("tinwright.");
    let own = message.full_name().strip_prefix(message.package_name()).unwrap_or_default();
    let mut names: Vec<_> = own.trim_start_matches('.').split('.').map(str::to_owned).collect();
    let name = names.pop().unwrap_or_default();
    let parents: String = names.iter().map(|parent| format!("{}::", snake(parent))).collect();
    format!("crate::{}::{parents}{name}", package.replace('.', "::"))
}

fn camel(snake: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    snake.split('_').map(capital).collect()
}

fn snake(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
