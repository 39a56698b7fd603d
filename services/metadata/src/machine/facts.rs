//! What follows from a machine's record.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::Value;
use tinwright::Mac;

use super::{Address, Instance, Machine, Nic, UserData};

impl Machine {
    /// The instance's id, else the hardware's. Never empty: cloud-init takes an empty one for a server that is not
    /// ready, and polls for minutes.
    pub fn instance_id(&self) -> Cow<'_, str> {
        match &self.instance {
            Some(instance) if !instance.id.is_empty() => Cow::Borrowed(&instance.id),
            Some(_) | None => Cow::Owned(self.id.to_string()),
        }
    }

    /// The instance's secret name, in small letters, if it has one.
    pub fn lookup_id(&self) -> Option<String> {
        let name = self.instance.as_ref()?.lookup_id.expose().to_ascii_lowercase();
        (!name.is_empty()).then_some(name)
    }

    /// The interface that is marked primary, else the first one.
    pub fn primary_nic(&self) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.primary).or(self.nics.first())
    }

    /// The interfaces an operating system should set up: those with an address or a lease, and the primary one, since the machine
    /// is talking to us somehow. The primary one comes first.
    pub fn used_nics(&self) -> Vec<&Nic> {
        let primary = self.primary_nic();
        let others = self.nics.iter().filter(|nic| {
            let has = !nic.addresses.is_empty() || nic.leased.is_some();
            has && primary.is_none_or(|primary| primary.mac != nic.mac)
        });
        primary.into_iter().chain(others).collect()
    }

    /// What the primary interface's network calls the machine, empty when it has no say.
    fn domain(&self) -> &str {
        self.primary_nic().map_or("", |nic| &nic.domain)
    }

    /// The instance's host name, else the one DHCP tells, with the domain appended if it has none.
    pub fn hostname(&self) -> String {
        let own = self.instance.as_ref().map(|instance| instance.hostname.as_str());
        let told = self.primary_nic().map(|nic| nic.hostname.as_str());
        let name = own.filter(|name| !name.is_empty()).or(told).unwrap_or_default();
        match self.domain() {
            domain if name.is_empty() || domain.is_empty() || name.contains('.') => name.to_owned(),
            domain => format!("{name}.{domain}"),
        }
    }

    /// The host name, if the world may know the machine by it: it has a domain, and a public IPv4 address.
    pub fn public_hostname(&self) -> String {
        let name = self.hostname();
        let known = name.contains('.') && self.public_ipv4().is_some();
        if known { name } else { String::new() }
    }

    /// Every address the machine may ask from, in normal form.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let on_nics = self.nics.iter().flat_map(|nic| &nic.addresses);
        on_nics.chain(self.instance_addresses()).map(|address| address.ip.to_canonical())
    }

    fn instance_addresses(&self) -> &[Address] {
        self.instance.as_ref().map_or(&[], |instance| &instance.addresses)
    }

    /// The instance's first address that is not public, else the first of the primary interface, else the one it is lent.
    pub fn local_ipv4(&self) -> Option<IpAddr> {
        let own = self.instance_addresses().iter().find(|a| a.ip.is_ipv4() && !a.public);
        let nic = self.primary_nic().into_iter().flat_map(|nic| &nic.addresses);
        let reserved = own.or(nic.into_iter().find(|a| a.ip.is_ipv4())).map(|address| address.ip);
        reserved.or_else(|| self.nics.iter().find_map(|nic| nic.leased))
    }

    /// The instance's first public IPv4 address.
    pub fn public_ipv4(&self) -> Option<IpAddr> {
        self.instance_addresses().iter().find(|a| a.ip.is_ipv4() && a.public).map(|a| a.ip)
    }

    /// The instance's first public IPv6 address.
    pub fn public_ipv6(&self) -> Option<IpAddr> {
        self.instance_addresses().iter().find(|a| a.ip.is_ipv6() && a.public).map(|a| a.ip)
    }

    /// The first IPv6 address of all, a public one if there is any.
    pub fn ipv6(&self) -> Option<IpAddr> {
        self.public_ipv6().or_else(|| self.addresses().find(IpAddr::is_ipv6))
    }

    /// The addresses an interface has: its own; and for the primary one those of the instance's that no interface has,
    /// but for public IPv4 ones, which the network translates.
    pub fn addresses_of(&self, nic: &Nic) -> Vec<Address> {
        let mut addresses = nic.addresses.clone();
        if self.primary_nic().is_some_and(|primary| primary.mac == nic.mac) {
            let has = |nic: &Nic, ip: IpAddr| {
                nic.addresses.iter().any(|a| a.ip.to_canonical() == ip.to_canonical())
            };
            let elsewhere = |ip| self.nics.iter().any(|other| has(other, ip));
            let own = self.instance_addresses().iter();
            addresses
                .extend(own.filter(|a| a.ip.is_ipv6() || !a.public).filter(|a| !elsewhere(a.ip)));
        }
        addresses
    }

    /// The public IPv4 addresses that lead to an interface: those it has, and for the primary one those no interface
    /// has, which the network translates.
    pub fn public_ipv4s_of(&self, nic: &Nic) -> Vec<IpAddr> {
        let primary = self.primary_nic().is_some_and(|primary| primary.mac == nic.mac);
        let has = |nic: &Nic, ip: IpAddr| {
            nic.addresses.iter().any(|a| a.ip.to_canonical() == ip.to_canonical())
        };
        let public = self.instance_addresses().iter().filter(|a| a.ip.is_ipv4() && a.public);
        let here = |ip| has(nic, ip) || (primary && !self.nics.iter().any(|other| has(other, ip)));
        public.map(|a| a.ip).filter(|ip| here(*ip)).collect()
    }

    /// The facility and one letter: botocore and cloud-init find the region by cutting the last letter off the zone.
    pub fn availability_zone(&self) -> String {
        if self.facility.is_empty() { String::new() } else { format!("{}a", self.facility) }
    }

    /// What kind of machine it is; never empty.
    pub fn instance_type(&self) -> &str {
        if self.plan.is_empty() { "metal" } else { &self.plan }
    }

    /// The image on it: `distro-version`, with the tag if it has one; else the slug.
    pub fn image_id(&self) -> String {
        let Some(Instance { os, .. }) = &self.instance else { return String::new() };
        let parts = [&os.distro, &os.version, &os.image_tag].map(String::as_str);
        match parts {
            ["", ..] | [_, "", _] => os.slug.clone(),
            [distro, version, ""] => format!("{distro}-{version}"),
            [distro, version, tag] => format!("{distro}-{version}-{tag}"),
        }
    }

    /// The keys of those who may log in, each one line without spaces around it; what is no line is left out.
    pub fn ssh_keys(&self) -> Vec<&str> {
        let keys = self.instance.as_ref().map_or(&[][..], |instance| &instance.ssh_keys);
        let keys = keys.iter().map(|key| key.trim());
        keys.filter(|key| !key.is_empty() && !key.contains(char::is_control)).collect()
    }

    /// What the keys are called, in the same order: the comment's harmless characters, else `key-N`. Clients split
    /// `N=name` at each `=`, so there is none in a name; and cloud-init keeps one key a name, so no two share one.
    pub fn key_names(&self) -> Vec<String> {
        let harmless = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@' | '-');
        let mut names: Vec<String> = Vec::new();
        for (n, key) in self.ssh_keys().iter().enumerate() {
            let comment = key.split_whitespace().skip(2).flat_map(str::chars);
            let mut name: String = comment.filter(harmless).collect();
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

    /// The text at a JSON pointer (RFC 6901) into what the instance's record says besides; empty if there is none.
    pub fn extra(&self, pointer: &str) -> &str {
        let extra = self.instance.as_ref().map(|instance| &instance.extra);
        extra.and_then(|extra| extra.pointer(pointer)?.as_str()).unwrap_or_default()
    }

    /// Whether the instance may be taken away when somebody pays more. Records without such a price say `"spot": {}`.
    pub fn is_spot(&self) -> bool {
        let extra = self.instance.as_ref().map(|instance| &instance.extra);
        let spot = extra.and_then(|extra| extra.get("spot")?.as_object());
        spot.is_some_and(|spot| !spot.is_empty())
    }

    /// The instance's user data; else, for an old record, what the hardware's owner wrote beside it.
    pub fn user_data(&self) -> Option<UserData> {
        let instance = self.instance.as_ref()?;
        if !instance.user_data.0.is_empty() {
            return Some(instance.user_data.clone());
        }
        let old = self.extra.get("userdata").and_then(Value::as_str)?;
        (!old.is_empty()).then(|| UserData(old.to_owned().into()))
    }

    /// The Ethernet addresses it may have.
    pub fn macs(&self) -> impl Iterator<Item = Mac> {
        self.nics.iter().map(|nic| nic.mac)
    }

    /// Device paths of the disks the instance has, the system disk first: its storage layout's, else the machine's.
    pub fn devices(&self) -> Vec<&str> {
        let extra = self.instance.as_ref().map(|instance| &instance.extra);
        let layout = extra.and_then(|extra| extra.pointer("/storage/disks")?.as_array());
        let laid_out = layout.into_iter().flatten().filter_map(|disk| disk.get("device")?.as_str());
        let laid_out: Vec<_> = laid_out.collect();
        if laid_out.is_empty() { self.disks.iter().map(String::as_str).collect() } else { laid_out }
    }
}
