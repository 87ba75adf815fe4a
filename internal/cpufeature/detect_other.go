//go:build !amd64 && !arm64

package cpufeature

func detect() Set { return 0 }
