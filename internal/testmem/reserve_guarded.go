//go:build darwin || freebsd || linux || netbsd || openbsd

package testmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reserve returns at least size bytes between two pages that may not be touched.
func reserve(size int) (memory []byte, slack int, release func(), err error) {
	page := os.Getpagesize()
	inside := (size + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, inside+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("map %d bytes: %w", inside+2*page, err)
	}
	for _, guard := range [][]byte{all[:page], all[page+inside:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			return nil, 0, nil, fmt.Errorf("protect a guard page: %w", err)
		}
	}
	return all[page : page+inside], 0, func() { unix.Munmap(all) }, nil
}
