//! Values derived from a machine's record.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::Value;
use tinwright::Mac;

use super::{Address, Instance, Machine, Nic, UserData};

impl Machine {
    /// Returns the instance's id, else the hardware's. Never empty: cloud-init takes an empty id for a server that is not
    /// ready, and polls for minutes.
    pub fn instance_id(&self) -> Cow<'_, str> {
        match &self.instance {
            Some(instance) if !instance.id.is_empty() => Cow::Borrowed(&instance.id),
            Some(_) | None => Cow::Owned(self.id.to_string()),
        }
    }

    /// Returns the instance's lookup id, in lower case, if it has one.
    pub fn lookup_id(&self) -> Option<String> {
        let id = self.instance.as_ref()?.lookup_id.expose().to_ascii_lowercase();
        (!id.is_empty()).then_some(id)
    }

    /// Returns the interface that is marked primary, else the first one.
    pub fn primary_nic(&self) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.primary).or(self.nics.first())
    }

    fn is_primary(&self, nic: &Nic) -> bool {
        self.primary_nic().is_some_and(|primary| primary.mac == nic.mac)
    }

    /// Returns the interfaces an operating system should set up: first the primary one, then the others
    /// with an address or a lease.
    pub fn used_nics(&self) -> Vec<&Nic> {
        let others = self.nics.iter().filter(|nic| {
            let has_address = nic.all_addresses().next().is_some() || nic.leased.is_some();
            has_address && !self.is_primary(nic)
        });
        self.primary_nic().into_iter().chain(others).collect()
    }

    /// Returns the instance's host name, else the one that DHCP gives, with DHCP's domain if it has none.
    pub fn hostname(&self) -> String {
        let own = self.instance.as_ref().map(|instance| instance.hostname.as_str());
        let (dhcp, domain) =
            self.primary_nic().map_or(("", ""), |nic| (&nic.hostname, &nic.domain));
        let name = own.filter(|name| !name.is_empty()).unwrap_or(dhcp);
        match name.is_empty() || domain.is_empty() || name.contains('.') {
            true => name.to_owned(),
            false => format!("{name}.{domain}"),
        }
    }

    /// Returns the host name if it is public: it has a domain, and the machine a public IPv4 address.
    pub fn public_hostname(&self) -> String {
        let name = self.hostname();
        let public = name.contains('.') && self.public_ipv4().is_some();
        if public { name } else { String::new() }
    }

    /// Returns all source addresses of the machine, in normal form.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let on_nics = self.nics.iter().flat_map(Nic::all_addresses);
        on_nics.chain(self.instance_addresses()).map(|address| address.ip.to_canonical())
    }

    fn instance_addresses(&self) -> &[Address] {
        self.instance.as_ref().map_or(&[], |instance| &instance.addresses)
    }

    /// Returns the instance's first IPv4 address that is not public, else the one that DHCP gives the primary interface, else the leased
    /// one, else the first one that is attached to the primary interface.
    pub fn local_ipv4(&self) -> Option<IpAddr> {
        let own = self.instance_addresses().iter().find(|a| a.ip.is_ipv4() && !a.public);
        let nic = || self.primary_nic().into_iter();
        let reserved = || nic().flat_map(|nic| &nic.addresses).find(|a| a.ip.is_ipv4());
        let attached = || nic().flat_map(|nic| &nic.attached).find(|a| a.ip.is_ipv4());
        let leased = || self.nics.iter().find_map(|nic| nic.leased);
        let first = own.or_else(reserved).map(|address| address.ip);
        first.or_else(leased).or_else(|| attached().map(|address| address.ip))
    }

    /// Returns the instance's first public IPv4 address.
    pub fn public_ipv4(&self) -> Option<IpAddr> {
        self.instance_addresses().iter().find(|a| a.ip.is_ipv4() && a.public).map(|a| a.ip)
    }

    /// Returns the instance's first public IPv6 address.
    pub fn public_ipv6(&self) -> Option<IpAddr> {
        self.instance_addresses().iter().find(|a| a.ip.is_ipv6() && a.public).map(|a| a.ip)
    }

    /// Returns the first public IPv6 address, else the first IPv6 address.
    pub fn ipv6(&self) -> Option<IpAddr> {
        self.public_ipv6().or_else(|| self.addresses().find(IpAddr::is_ipv6))
    }

    /// True if an interface's record has the address `ip`.
    fn is_on_nic(&self, ip: IpAddr) -> bool {
        self.nics.iter().any(|nic| nic.has(ip))
    }

    /// Returns the addresses of an interface: its own; and for the primary one those of the instance that no interface has,
    /// except public IPv4 addresses, which the network translates.
    pub fn addresses_of(&self, nic: &Nic) -> Vec<Address> {
        let mut addresses: Vec<_> = nic.all_addresses().copied().collect();
        if self.is_primary(nic) {
            let own = self.instance_addresses().iter().filter(|a| a.ip.is_ipv6() || !a.public);
            addresses.extend(own.filter(|a| !self.is_on_nic(a.ip)));
        }
        addresses
    }

    /// Returns the public IPv4 addresses that lead to an interface: those in its record, and for the primary one those that no
    /// interface has, which the network translates.
    pub fn public_ipv4s_of(&self, nic: &Nic) -> Vec<IpAddr> {
        let public = self.instance_addresses().iter().filter(|a| a.ip.is_ipv4() && a.public);
        let here = |ip| nic.has(ip) || (self.is_primary(nic) && !self.is_on_nic(ip));
        public.map(|a| a.ip).filter(|ip| here(*ip)).collect()
    }

    /// Returns the facility and one letter: botocore and cloud-init cut the last letter of the zone off to get the region.
    pub fn availability_zone(&self) -> String {
        if self.facility.is_empty() { String::new() } else { format!("{}a", self.facility) }
    }

    /// Returns the plan; never empty.
    pub fn instance_type(&self) -> &str {
        if self.plan.is_empty() { "metal" } else { &self.plan }
    }

    /// Returns the name of the image: `distro-version`, with the tag if it has one; else the slug.
    pub fn image_id(&self) -> String {
        let Some(Instance { os, .. }) = &self.instance else { return String::new() };
        let parts = [&os.distro, &os.version, &os.image_tag].map(String::as_str);
        match parts {
            ["", ..] | [_, "", _] => os.slug.clone(),
            [distro, version, ""] => format!("{distro}-{version}"),
            [distro, version, tag] => format!("{distro}-{version}-{tag}"),
        }
    }

    /// Returns the instance's tags.
    pub fn tags(&self) -> &[String] {
        self.instance.as_ref().map_or(&[], |instance| &instance.tags)
    }

    /// Returns the tags as keys and values. A tag without a `=` has an empty value.
    pub fn tag_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags().iter().map(|tag| tag.split_once('=').unwrap_or((tag, "")))
    }

    /// Returns the instance's SSH keys, trimmed. Keys of more than one line are left out.
    pub fn ssh_keys(&self) -> Vec<&str> {
        let keys = self.instance.as_ref().map_or(&[][..], |instance| &instance.ssh_keys);
        let keys = keys.iter().map(|key| key.trim());
        keys.filter(|key| !key.is_empty() && !key.contains(char::is_control)).collect()
    }

    /// Returns the names of the keys, in the same order: the safe characters of the comment, else `key-N`. Clients split
    /// `N=name` at each `=`, so a name contains none. cloud-init keeps one key per name, so names are unique.
    pub fn key_names(&self) -> Vec<String> {
        let is_safe = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@' | '-');
        let mut names: Vec<String> = Vec::new();
        for (n, key) in self.ssh_keys().iter().enumerate() {
            let comment = key.split_whitespace().skip(2).flat_map(str::chars);
            let mut name: String = comment.filter(is_safe).collect();
            if name.is_empty() {
                name = format!("key-{n}");
            }
            while names.contains(&name) {
                name = format!("{name}-{n}");
            }
            names.push(name);
        }
        names
    }

    /// Returns the value at a JSON pointer (RFC 6901) into the instance's `extra`.
    fn extra_value(&self, pointer: &str) -> Option<&Value> {
        self.instance.as_ref()?.extra.pointer(pointer)
    }

    /// Returns the text at a JSON pointer (RFC 6901) into the instance's `extra`; empty if there is none.
    pub fn extra(&self, pointer: &str) -> &str {
        self.extra_value(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// True if the instance has a spot price. Records without one have `"spot": {}`.
    pub fn is_spot(&self) -> bool {
        let spot = self.extra_value("/spot").and_then(Value::as_object);
        spot.is_some_and(|spot| !spot.is_empty())
    }

    /// Returns the instance's user data, else `userdata` of the hardware record's `extra`, where old records have it.
    pub fn user_data(&self) -> Option<UserData> {
        let instance = self.instance.as_ref()?;
        if !instance.user_data.0.is_empty() {
            return Some(instance.user_data.clone());
        }
        let old = self.extra.get("userdata").and_then(Value::as_str)?;
        (!old.is_empty()).then(|| UserData(old.to_owned().into()))
    }

    /// Returns the MACs of all interfaces.
    pub fn macs(&self) -> impl Iterator<Item = Mac> {
        self.nics.iter().map(|nic| nic.mac)
    }

    /// Returns the device paths of the disks, the system disk first: the storage layout's, else the machine's.
    pub fn devices(&self) -> Vec<&str> {
        let layout = self.extra_value("/storage/disks").and_then(Value::as_array);
        let disks = layout.into_iter().flatten().filter_map(|disk| disk.get("device")?.as_str());
        let disks: Vec<_> = disks.collect();
        if disks.is_empty() { self.disks.iter().map(String::as_str).collect() } else { disks }
    }
}

impl Nic {
    /// Returns its addresses: first the one that DHCP gives, then those that are attached to it.
    pub fn all_addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().chain(&self.attached)
    }

    fn has(&self, ip: IpAddr) -> bool {
        self.all_addresses().any(|address| address.ip.to_canonical() == ip.to_canonical())
    }
}
