//go:build !(darwin || freebsd || linux || netbsd || openbsd)

package testmem

// reserve returns at least size bytes between two runs of slack.
func reserve(size int) (memory []byte, slack int, release func(), err error) {
	const page = 4096
	size = (size + alignment - 1) / alignment * alignment
	return make([]byte, size+2*page), page, func() {}, nil
}
