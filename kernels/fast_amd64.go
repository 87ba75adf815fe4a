//go:build !purego

package kernels

var fast = implementations{
	gemmFloat32: gemmFloat32, syrkFloat32: syrkFloat32,
}
