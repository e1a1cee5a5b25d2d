"""The fault hunt."""
