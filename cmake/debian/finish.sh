#!/bin/sh
# finish.sh PACKAGE...: mends in place what CPack 3.25 makes otherwise than Debian's policy says.
set -eu
for package; do
  root=$package.unpacked
  dpkg-deb -R "$package" "$root"
  name=$(dpkg-deb -f "$package" Package)
  # Policy 8.1.1: a trigger for ldconfig, no scripts.
  rm -f "$root/DEBIAN/postinst" "$root/DEBIAN/postrm"
  case $name in
    *-dbgsym)
      mkdir -p "$root/usr/share/doc"
      ln -s "${name%-dbgsym}" "$root/usr/share/doc/$name"
      ;;
  esac
  (cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k2 >DEBIAN/md5sums)
  find "$root" -type d -exec chmod 755 {} +
  dpkg-deb --root-owner-group -b "$root" "$package" >/dev/null
  rm -rf "$root"
done
